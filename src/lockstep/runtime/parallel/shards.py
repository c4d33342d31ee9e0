"""One rank's shard of the model: FSDP2 gathers the parameters of a block where it needs them, and frees them again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Terms
from lockstep.runtime.parallel.buffers import broadcast_tensors
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
        for buffer_owner in model.modules():
            buffer_owner._buffers.update(_on_device(buffer_owner._buffers, world.device))
        self._named = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._filling = Filling(model, units)
        self._called: list[str] = []
        for name, unit in units.items():
            unit.register_forward_pre_hook(_Caller(self._called, name))
        self._compared = False
        self.sync_buffers()

    def forward(self, batch: Any) -> Terms:
        """The terms of this rank's micro-batch; all ranks call it together."""
        self._called.clear()
        terms: Terms = self._module(batch)
        if not self._compared:
            self._compared = True
            self._same_blocks()
        return terms

    def evaluate(self, batch: Any, metrics: Mapping[str, Any]) -> Terms:
        """The terms of an evaluation batch; all ranks call it together."""
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
        if self.task is not None:
            self.task.reshard()

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
        self._filling.start(loss, last)
        loss.backward()
        return 0

    def norm(self, params: Sequence[nn.Parameter]) -> Tensor:
        """The norm of the whole gradient. What no rank had a gradient for has none afterwards, as in one process.

        One sum over the ranks carries both: the squares, and who had which gradient.
        """
        named = list(self._named.items())
        squares = [local(p.grad).double().square().sum() for _, p in named if p.grad is not None]
        had = [float(p.grad is not None and name not in self._filling.absent) for name, p in named]
        device = self.world.device
        total = torch.stack(squares).sum().to(device) if squares else torch.zeros((), device=device).double()
        sums = torch.cat([total.reshape(1), torch.tensor(had, dtype=torch.float64, device=device)])
        dist.all_reduce(sums)
        ranks_with = sums[1:].round().long().tolist()
        self.unused = frozenset(
            name for (name, _), ranks in zip(named, ranks_with, strict=True) if ranks < self.world.num_ranks
        )
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
        self._module.set_requires_gradient_sync(on)

    def _same_blocks(self) -> None:
        """A block that is called on one rank only is gathered there for ever."""
        ranks = self.world.gather(list(self._called))
        if all(called == ranks[0] for called in ranks):
            return
        each = "; ".join(f"rank {r}: {', '.join(called) or 'none'}" for r, called in enumerate(ranks))
        must = "with parallel.strategy=fsdp every rank calls the same blocks in the same order"
        next_step = "leave out of parallel.blocks what only some samples use; it is then gathered with the model"
        raise UserError(explain(f"the first forward called the blocks ({each})", must, "recipe.model()", next_step))


class _Caller:
    """Forward pre-hook that notes which block was called."""

    def __init__(self, called: list[str], name: str) -> None:
        self.called, self.name = called, name

    def __call__(self, *_: object) -> None:
        self.called.append(self.name)


def _shareable(model: nn.Module, units: Mapping[str, nn.Module]) -> None:
    """A parameter has a dimension to be split along, and belongs to one block, or to none of them."""
    for name, param in model.named_parameters():
        if param.dim() == 0:
            seen, must = f"{name} is a single number", "with parallel.strategy=fsdp a parameter has a dimension"
            raise UserError(explain(seen, must, "recipe.model()", "give it the shape (1,)"))
    owner: dict[int, str] = {}
    inside = {id(module): name for name, unit in units.items() for module in unit.modules()}
    for module_name, module in model.named_modules():
        unit = inside.get(id(module), "")
        for name, param in module.named_parameters(recurse=False):
            first = owner.setdefault(id(param), unit)
            if first != unit:
                where = f"{module_name}.{name}"
                seen = f"{where} is shared between {' and '.join(n or 'the rest of the model' for n in (first, unit))}"
                must = "with parallel.strategy=fsdp a shared parameter lies within one block, or outside of all"
                raise UserError(explain(seen, must, "recipe.model()", "name other blocks: parallel.blocks=[...]"))


def _on_device(buffers: Mapping[str, Tensor | None], device: torch.device) -> dict[str, Tensor | None]:
    return {name: value if value is None else value.to(device) for name, value in buffers.items()}
