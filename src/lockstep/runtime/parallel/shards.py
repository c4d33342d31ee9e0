"""One rank's shard of the model: FSDP2 gathers the parameters of a block where it needs them, and frees them again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Terms
from lockstep.runtime.parallel.buffers import broadcast_tensors, broadcasts
from lockstep.runtime.parallel.filling import Filling
from lockstep.runtime.parallel.local import local
from lockstep.runtime.parallel.task import Task
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World


class Shards(Wrapped):
    """The task of one rank that holds its share of every parameter, gradient and optimizer state.

    Args:
        model: the model on the host or on its device; rank 0's values are taken, and every parameter becomes a
            DTensor that is split along its first dimension.
        recipe: gives the loss.
        world: the ranks.
        units: blocks that are gathered one by one, by name; everything else is gathered as one.
        config: the section `parallel`.

    Raises:
        UserError: where blocks share a parameter, or the ranks do not call the same blocks.
    """

    paired = True

    def __init__(
        self, model: nn.Module, recipe: Recipe, world: World, units: Mapping[str, nn.Module], config: ParallelConfig
    ) -> None:
        self.model, self.recipe, self.world = model, recipe, world
        _shareable(model, units)
        broadcast_tensors([param.detach() for param in model.parameters()])
        task = Task(model, recipe)
        mesh = init_device_mesh(world.device.type, (world.num_ranks,))
        # Pinned memory is a GPU's; on a CPU everything is in host memory anyway.
        offloads = config.cpu_offload and world.device.type != "cpu"
        policy = CPUOffloadPolicy() if offloads else OffloadPolicy()
        for unit in units.values():
            fully_shard(unit, mesh=mesh, reshard_after_forward=config.reshard_after_forward, offload_policy=policy)
        self.task: FSDPModule | None = fully_shard(task, mesh=mesh, offload_policy=policy)
        self._named = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._filling = Filling(model, units)
        self._refuses = config.find_unused == "off"
        self._broadcasts = broadcasts(model, config.broadcast_buffers)
        self._reduces = self._stepped = True
        self._compared = False
        for name, unit in units.items():
            # Before the wrapper's own hook, which gathers: a rank that calls another block would wait there for ever.
            unit.register_forward_pre_hook(partial(self._meet, name), prepend=True)
        self.sync_buffers()

    def forward(self, batch: Any) -> Terms:
        """The terms of this rank's micro-batch; all ranks call it together."""
        if self._broadcasts and self._stepped:
            self.sync_buffers()
        self._stepped = self._reduces
        with _worded():
            terms: Terms = self._module(batch)
        self._meet("the end")
        self._compared = True
        return terms

    def evaluate(self, batch: Any, metrics: Mapping[str, Any]) -> Terms:
        """The terms of an evaluation batch; all ranks call it together."""
        with _worded():
            return self._module(batch, metrics)  # type: ignore[no-any-return]

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode; a forward without a backward leaves gathered what the shards may soon no longer be."""
        self.reshard()
        try:
            with super().evaluating():
                yield
        finally:
            self.reshard()

    def reshard(self) -> None:
        """Free what a forward without a backward has left gathered."""
        for module in self._module.modules() if self.task is not None else ():
            if isinstance(module, FSDPModule):
                module.reshard()

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Whole gradients are kept on this rank and reduced with those of the last micro-step."""
        self._sync(False)
        try:
            yield
        finally:
            self._sync(True)

    def backward(self, loss: Tensor, last: bool, count: int | Tensor = 0, stop: bool = False) -> int:
        """Backward of one micro-step; every rank runs it, for it communicates."""
        if not loss.requires_grad:
            must = "with parallel.strategy=fsdp the loss of every rank depends on the model, if only by a factor of 0"
            raise RunError(explain(f"rank {self.world.rank}: the loss is a constant", must, "recipe.loss()"))
        with _worded():
            self._filling.start(loss, last).backward()
        self._filling.end()
        return 0

    def norm(self, params: Sequence[nn.Parameter]) -> Tensor:
        """The norm of the whole gradient. What no rank had a gradient for has none afterwards, as in one process.

        One sum over the ranks carries both: the squares, and who had which gradient.
        """
        named = list(self._named.items())
        squares = [local(p.grad).double().square().sum() for _, p in named if p.grad is not None]
        had = [float(name in self._filling.had) for name, _ in named]
        device = self.world.device
        total = torch.stack(squares).sum().to(device) if squares else torch.zeros((), device=device).double()
        sums = torch.cat([total.reshape(1), torch.tensor(had, dtype=torch.float64, device=device)])
        dist.all_reduce(sums)
        ranks_with = sums[1:].round().long().tolist()
        self.unused = frozenset(
            name for (name, _), ranks in zip(named, ranks_with, strict=True) if ranks < self.world.num_ranks
        )
        if self._refuses and self.unused:
            seen = f"no gradient on some rank for {', '.join(sorted(self.unused)[:8])}"
            must = "with parallel.find_unused=off every parameter gets a gradient in every step on every rank"
            raise RunError(explain(seen, must, next_step="use them in every forward, or set parallel.find_unused=auto"))
        for (_, param), ranks in zip(named, ranks_with, strict=True):
            if ranks == 0:
                param.grad = None
        return sums[0].sqrt()

    def close(self) -> None:
        """Drop the wrapper."""
        self.task = None

    @property
    def _module(self) -> Any:
        assert self.task is not None
        return self.task

    def _sync(self, on: bool) -> None:
        self._reduces = on
        self._module.set_requires_gradient_sync(on)

    def _meet(self, called: str, *_: object) -> None:
        """In the first forward, the ranks compare what each of them calls next."""
        if self._compared:
            return
        ranks = self.world.gather(called)
        if any(other != ranks[0] for other in ranks):
            each = "; ".join(f"rank {rank}: {name}" for rank, name in enumerate(ranks))
            must = "with parallel.strategy=fsdp every rank calls the same blocks in the same order"
            next_step = "leave out of parallel.blocks what only some samples use; it is then gathered with the model"
            raise UserError(explain(f"the ranks call different blocks ({each})", must, "recipe.model()", next_step))


def _shareable(model: nn.Module, units: Mapping[str, nn.Module]) -> None:
    """A parameter has a dimension to be split along, and belongs to one block, or to none of them."""
    for name, param in model.named_parameters():
        if param.dim() == 0:
            seen, must = f"{name} is a single number", "with parallel.strategy=fsdp a parameter has a dimension"
            raise UserError(explain(seen, must, "recipe.model()", "give it the shape (1,)"))
    names = {id(unit): name for name, unit in units.items()}
    owner: dict[int, str] = {}
    types: dict[str, torch.dtype] = {}
    for path, param, unit in _owned(model, names):
        if param.requires_grad and types.setdefault(unit, param.dtype) != param.dtype:
            seen = f"{path} is {param.dtype}, and other parameters of {unit or 'the model'} are {types[unit]}"
            must = "with parallel.strategy=fsdp the parameters of a block are of one type"
            raise UserError(explain(seen, must, "recipe.model()", "put them in blocks of their own: parallel.blocks"))
        first = owner.setdefault(id(param), unit)
        if first != unit:
            both = " and ".join(name or "the rest of the model" for name in (first, unit))
            must = "with parallel.strategy=fsdp a shared parameter lies within one block, or outside of all"
            next_step = "name other blocks: parallel.blocks=[...]"
            raise UserError(explain(f"{path} is shared between {both}", must, "recipe.model()", next_step))


def _owned(
    module: nn.Module, names: Mapping[int, str], path: str = "", unit: str = ""
) -> Iterator[tuple[str, nn.Parameter, str]]:
    """Every place of every parameter, also of a shared module: its path, itself, the block that it lies in."""
    unit = names.get(id(module), unit)
    for name, param in module._parameters.items():
        if param is not None:
            yield f"{path}{name}", param, unit
    for name, child in module.named_children():
        yield from _owned(child, names, f"{path}{name}.", unit)


@contextmanager
def _worded() -> Iterator[None]:
    """A parameter that is used where it is not gathered, in words."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in ("mixed torch.Tensor and DTensor", "setStorage")):
            raise
        seen = "a parameter was used where this rank holds its shard only: outside of its block's forward"
        seen += ", or after a backward within loss()"
        must = "with parallel.strategy=fsdp a block is called as a whole, and nothing else reads its parameters"
        next_step = "leave it out of parallel.blocks; `[]` gathers the whole model at once"
        raise UserError(explain(seen, must, "recipe.loss() or the model's forward", next_step)) from error
