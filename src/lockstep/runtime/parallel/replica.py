"""One rank's copy of the model, kept equal to the others by DistributedDataParallel."""

import inspect
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Terms, checked_terms
from lockstep.runtime.parallel.lane import SIZE
from lockstep.runtime.parallel.unused import Completion
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World

ONE_BUCKET_MB = 2.0**20


class Task(nn.Module):
    """The loss of a recipe as one module, so that nothing in it can bypass the wrapper's forward."""

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        # First registered, so last reduced: see `Completion`.
        self.lane = nn.Parameter(torch.zeros(SIZE))
        self.model = model
        self.recipe = recipe

    def forward(self, batch: Any) -> Terms:
        """The terms of one micro-batch."""
        return checked_terms(self.recipe.loss(self.model, batch), type(self.recipe).__name__)


class Replica:
    """The wrapped task of one rank.

    Buffers that only evaluation reads (running statistics) are not broadcast at each forward, which would cost a
    collective a step; call `sync_buffers` before they are read or saved.

    Args:
        model: the model on its device; broadcast from rank 0.
        recipe: gives the loss.
        world: the ranks.
        config: the section `parallel`.
        timed_every: optimizer steps between two that are timed for `communication_s`.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, world: World, config: ParallelConfig, timed_every: int = 100
    ) -> None:
        self.model, self.world = model, world
        task = Task(model, recipe).to(world.device)
        completes = config.find_unused != "on" and not config.static_graph
        if not completes:
            task.lane.requires_grad_(False)
        self.ddp: DistributedDataParallel | None = DistributedDataParallel(
            task,
            gradient_as_bucket_view=True,
            bucket_cap_mb=_bucket_mb(config, completes),
            find_unused_parameters=config.find_unused == "on",
            static_graph=config.static_graph,
            **_buffers_option(_broadcasts(model, config.broadcast_buffers)),
        )
        self.ddp._set_ddp_runtime_logging_sample_rate(timed_every)
        refuse = config.find_unused == "off"
        self.completion = Completion(model, task.lane, world, refuse) if completes else None
        self.sync_buffers()

    def forward(self, batch: Any) -> Terms:
        """The terms of this rank's micro-batch."""
        assert self.ddp is not None
        return self.ddp(batch)  # type: ignore[no-any-return]

    def accumulating(self) -> AbstractContextManager[None]:
        """Context for forward and backward of all but the last micro-step: no communication."""
        assert self.ddp is not None
        return self.ddp.no_sync()

    def backward(self, loss: Tensor, last: bool, count: int | Tensor = 0, stop: bool = False) -> int:
        """Backward of one micro-step; after the last one, gradients are those of all ranks.

        Args:
            loss: scalar.
            last: whether this is the last micro-step.
            count: a whole number for the gradients to carry, where there is a `completion`.
            stop: a flag for them to carry; `completion.stop` then says whether any rank had it.

        Returns:
            The sum of `count` over the ranks after the last micro-step, 0 before or where nothing carries it.
        """
        if self.completion is None:
            loss.backward()
            return 0
        self.completion.start()
        # A share without a valid element may give a constant; what it leaves out is completed.
        if loss.requires_grad:
            loss.backward()
        return self.completion.finish(count, stop) if last else 0

    def sync_buffers(self) -> None:
        """Rank 0's buffers on every rank."""
        sync_buffers(self.model)

    def communication_s(self) -> tuple[float, float]:
        """Seconds of the last sampled step in (all gradient communication, its part hidden behind backward)."""
        assert self.ddp is not None
        data: dict[str, Any] = self.ddp._get_ddp_logging_data()
        names = "backward_comm_time", "backward_compute_comm_overlap_time"
        total, hidden = (float(data.get(name, 0)) * 1e-9 for name in names)
        return total, hidden

    def close(self) -> None:
        """Drop the wrapper, which must not outlive the process group."""
        self.ddp = None
        self.completion = None


def sync_buffers(model: nn.Module) -> None:
    """Rank 0's buffers on every rank, one broadcast for each type. All ranks call it together.

    Args:
        model: the unwrapped model.
    """
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for buffer in model.buffers():
        by_type.setdefault(buffer.dtype, []).append(buffer.detach())
    for buffers in by_type.values():
        flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
        dist.broadcast(flat, src=0)
        for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(part.view_as(buffer))


def _bucket_mb(config: ParallelConfig, completes: bool) -> float:
    """The size of a bucket; one for all where the backward of a layer communicates too.

    A rank that leaves a parameter out starts its bucket only when it is completed, after those layers, and others
    before: with one bucket, which waits for the lane, every rank starts it last.
    """
    return ONE_BUCKET_MB if completes and config.sync_batchnorm else config.bucket_mb


def _broadcasts(model: nn.Module, choice: str) -> bool:
    """Whether buffers must be equal at each forward: all but running statistics may be read there."""
    if choice != "auto":
        return choice == "on"
    owned = {id(b) for m in model.modules() if isinstance(m, _NormBase) for b in m.buffers(recurse=False)}
    return any(id(buffer) not in owned for buffer in model.buffers())


def _buffers_option(broadcast: bool) -> dict[str, Any]:
    """The option under the name that the installed torch knows without a warning."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": broadcast}
