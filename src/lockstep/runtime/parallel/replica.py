"""One rank's copy of the model, kept equal to the others by DistributedDataParallel."""

import inspect
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Terms
from lockstep.runtime.parallel.buffers import broadcasts
from lockstep.runtime.parallel.lane import SIZE
from lockstep.runtime.parallel.task import Task
from lockstep.runtime.parallel.unused import Completion
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World

ONE_BUCKET_MB = 2.0**20


class LanedTask(Task):
    """A task with a lane for small numbers. A module's own parameters come first, so it is reduced last."""

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        super().__init__(model, recipe)
        self.lane = nn.Parameter(torch.zeros(SIZE))


class Replica(Wrapped):
    """The task of one rank that holds the whole model.

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
        self.model, self.recipe, self.world = model, recipe, world
        task = LanedTask(model, recipe).to(world.device)
        completes = config.find_unused != "on" and not config.static_graph
        if not completes:
            task.lane.requires_grad_(False)
        self.ddp: DistributedDataParallel | None = DistributedDataParallel(
            task,
            gradient_as_bucket_view=True,
            bucket_cap_mb=_bucket_mb(config, completes),
            find_unused_parameters=config.find_unused == "on",
            static_graph=config.static_graph,
            **_buffers_option(broadcasts(model, config.broadcast_buffers)),
        )
        self.ddp._set_ddp_runtime_logging_sample_rate(timed_every)
        refuse = config.find_unused == "off"
        self.completion = Completion(model, task.lane, world, refuse) if completes else None
        self.carries = completes
        self.sync_buffers()

    def forward(self, batch: Any) -> Terms:
        """The terms of this rank's micro-batch."""
        assert self.ddp is not None
        return self.ddp(batch)  # type: ignore[no-any-return]

    def accumulating(self) -> AbstractContextManager[None]:
        """Forward and backward of all but the last micro-step: no communication."""
        assert self.ddp is not None
        return self.ddp.no_sync()

    def backward(self, loss: Tensor, last: bool, count: int | Tensor = 0, stop: bool = False) -> int:
        """Backward of one micro-step, completed after the last one: see `Wrapped`."""
        if self.completion is None:
            loss.backward()
            return 0
        self.completion.start()
        # A share without a valid element may give a constant; what it leaves out is completed.
        if loss.requires_grad:
            loss.backward()
        if not last:
            return 0
        total = self.completion.finish(count, stop)
        self.unused, self.stop = self.completion.unused, self.completion.stop
        return total

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


def _bucket_mb(config: ParallelConfig, completes: bool) -> float:
    """The size of a bucket; one for all where the backward of a layer communicates too.

    A rank that leaves a parameter out starts its bucket only when it is completed, after those layers, and others
    before: with one bucket, which waits for the lane, every rank starts it last.
    """
    return ONE_BUCKET_MB if completes and config.sync_batchnorm else config.bucket_mb


def _buffers_option(broadcast: bool) -> dict[str, Any]:
    """The option under the name that the installed torch knows without a warning."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": broadcast}
