"""Saving and restoring a run: what goes into a checkpoint, and where it comes back to."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.config import CheckpointConfig
from lockstep.runtime.optim import Schedule, stand_at
from lockstep.runtime.state.checkpoint import (
    Checkpoint,
    DamagedError,
    Snapshot,
    name_of,
    newest_whole,
    point_to_best,
    prune,
    read,
)
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.tensors import host_copy, weights_of
from lockstep.runtime.state.weights import load_weights
from lockstep.runtime.state.writer import Writer, Written
from lockstep.runtime.world import World

log = logging.getLogger("lockstep")


class State:
    """All that a resume needs, bound to the objects that hold it.

    Args:
        model: the unwrapped model.
        optimizer: the optimizer over it.
        schedule: its schedule, None where the optimizer's learning rate holds.
        scaler: the loss scaler, None where there is none.

    Attributes:
        notes: plain values that go into each snapshot besides, and come back with `restore`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
        self.notes: dict[str, Any] = {}

    def snapshot(self, position: Position, about: Mapping[str, Any], spent: Snapshot | None = None) -> Snapshot:
        """Host copies of this moment; training may go on while they are written.

        Args:
            position: where the run stands.
            about: what the manifest holds besides.
            spent: an earlier snapshot, whose memory is overwritten.
        """
        tensors, ties, rest = weights_of(self.model, spent.tensors if spent else None)
        old = spent.trainer["optimizer"] if spent else None
        trainer = {
            "position": position.to_dict(),
            "optimizer": host_copy(self.optimizer.state_dict(), old),
            "schedule": host_copy(self.schedule.state_dict()) if self.schedule else {},
            "scaler": host_copy(self.scaler.state_dict()),
            "extra_state": rest,
            "notes": dict(self.notes),
        }
        return Snapshot(position.step, tensors, ties, trainer, about)

    def restore(self, checkpoint: Checkpoint) -> Position:
        """Put everything back; returns where the run stood.

        Raises:
            UserError: where the checkpoint is of another architecture or optimizer.
        """
        trainer = checkpoint.trainer
        load_weights(self.model, checkpoint.tensors, str(checkpoint.path), trainer["extra_state"])
        try:
            load_optimizer(self.optimizer, trainer["optimizer"])
            if self.schedule:
                stand_at(self.schedule, trainer["schedule"])
            match_layout(self.optimizer)
        except (ValueError, KeyError) as error:
            must = "the same optimizer and schedule as at the save"
            raise UserError(
                explain(f"{checkpoint.path} does not fit this run: {error}", must, "optim, schedule")
            ) from None
        if self.scaler.is_enabled() and trainer["scaler"]:
            self.scaler.load_state_dict(trainer["scaler"])
        self.notes = dict(trainer.get("notes", {}))
        return Position(**trainer["position"])


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Load moments and counters; learning rate, weight decay and the like stay as this run's config says.

    Args:
        optimizer: of this run.
        saved: the state dict of the same kind of optimizer.

    Raises:
        ValueError: where the saved state is of another kind.
    """
    own, theirs = optimizer.state_dict()["param_groups"], saved["param_groups"]
    if [group.keys() for group in own] != [group.keys() for group in theirs]:
        raise ValueError(f"it was saved with another optimizer than {type(optimizer).__name__}")
    groups = [{**mine, "params": its["params"]} for mine, its in zip(own, theirs, strict=True)]
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})


def match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Lay out each state tensor as its parameter is: a fused kernel reads both in the order of memory."""
    for param, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == param.shape and value.stride() != param.stride():
                state[name] = torch.empty_like(param, dtype=value.dtype).copy_(value)


def find_checkpoint(folder: Path, world: World) -> Checkpoint:
    """The newest whole checkpoint of a run; rank 0 chooses, every rank reads.

    Raises:
        UserError: where there is none.
    """
    path: Path | None = None
    refused: list[str] = []
    if world.is_main:
        path, refused = newest_whole(folder)
    path, refused = world.broadcast((path, refused))
    for reason in refused:
        if world.is_main:
            log.warning("checkpoint refused: %s", reason)
    if path is None:
        seen = f"no whole checkpoint in {folder}"
        raise UserError(
            explain(seen, "a run that has saved at least once", next_step="start it anew, without --resume")
        )
    if refused and world.is_main:
        log.warning("the one before is used: %s", path)
    try:
        return read(path)
    except DamagedError as damage:
        must = "a checkpoint does not change while it is read"
        if not path.exists():
            must = "every rank sees the run's folder: with several machines it lies on a disk that all share"
        raise RunError(explain(str(damage), must, f"rank {world.rank}")) from None


class Saver:
    """Writes a run's checkpoints; acts on rank 0 only.

    Args:
        folder: the folder of checkpoints.
        config: the section `checkpoint`.
        about: what every manifest holds.
        acts: whether this rank writes.
    """

    def __init__(self, folder: Path, config: CheckpointConfig, about: Mapping[str, Any], acts: bool) -> None:
        self.folder, self.config, self.about, self.acts = folder, config, about, acts
        self.saved: Position | None = None
        self.stall_s = 0.0
        self.failed: Written | None = None
        self._writer = Writer(folder, config.asynchronous, self._after)

    def save(self, state: State, position: Position) -> None:
        """Copy the state and have it written; returns once the copy is made."""
        self.saved = position
        if not self.acts:
            return
        start = time.perf_counter()
        about = {**self.about, "epoch": position.epoch, "best": position.best}
        self._writer.submit(state.snapshot(position, about, self._writer.spent()))
        self.stall_s += time.perf_counter() - start
        self.report(self._writer.finished())

    def report(self, ended: list[Written]) -> None:
        """Say what failed; a later save tries again, and the last good checkpoint stays."""
        for written in ended:
            self.failed = None if written.path else written
            if written.path is None:
                log.error("checkpoint of step %d was not saved: %s; training goes on", written.step, written.error)
            elif written.error:
                log.warning("saved %s, but older ones could not be deleted: %s", written.path, written.error)
            else:
                log.debug("saved %s", written.path)

    def poll(self) -> None:
        """Report the saves that ended meanwhile."""
        self.report(self._writer.finished())

    def close(self, ending_well: bool) -> None:
        """Wait for what is being written.

        Raises:
            RunError: where a run that ends well could not save its last state.
        """
        self.report(self._writer.close())
        if ending_well and self.failed is not None:
            seen = f"the last checkpoint (step {self.failed.step}) could not be saved: {self.failed.error}"
            raise RunError(explain(seen, "room and write access", str(self.folder), "free the disk, then resume"))

    def _after(self, snapshot: Snapshot) -> None:
        best = snapshot.trainer["position"]["best_step"]
        kept = best if self.config.keep_best else None
        if kept is not None and (self.folder / name_of(kept)).is_dir():
            point_to_best(self.folder, kept)
        prune(self.folder, self.folder / name_of(snapshot.step), self.config.keep_last)
