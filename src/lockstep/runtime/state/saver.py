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
from lockstep.runtime.data.stateful import StreamState
from lockstep.runtime.ema import Ema
from lockstep.runtime.optim import Schedule, stand_at
from lockstep.runtime.readable import check_readable
from lockstep.runtime.state.checkpoint import (
    EMA,
    SHARDS,
    Checkpoint,
    DamagedError,
    Snapshot,
    name_of,
    newest_whole,
    point_to_best,
    prune,
    read,
)
from lockstep.runtime.state.fellows import Fellows
from lockstep.runtime.state.optimizer import described, load_optimizer, match_layout, names_of, split_state
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.tensors import extra_state, host_copy, weights_of
from lockstep.runtime.state.weights import load_weights, read_weights
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
        fellows: the ranks that save together where parameters are shards; None where every rank holds the model.
        ema: the average of the weights, None where there is none.

    Attributes:
        notes: plain values that go into each snapshot besides, and come back with `restore`.
        stream: the training stream's own state, None where it has none.

    Raises:
        UserError: the model's extra state could not be read by a resume.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule | None = None,
        scaler: torch.amp.GradScaler | None = None,
        fellows: Fellows | None = None,
        ema: Ema | None = None,
    ) -> None:
        self.model, self.optimizer, self.schedule, self.fellows = model, optimizer, schedule, fellows
        self.ema = ema
        self.scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
        self.notes: dict[str, Any] = {}
        self.stream: StreamState | None = None
        check_readable({"extra_state": extra_state(model)})  # now, and not after a day of training

    def snapshot(self, position: Position, about: Mapping[str, Any], spent: Snapshot | None = None) -> Snapshot:
        """Host copies of this moment; training may go on while they are written. With fellows, all call it together.

        Args:
            position: where the run stands.
            about: what the manifest holds besides.
            spent: an earlier snapshot, whose memory is overwritten.

        Raises:
            UserError: a value that a resume could not read.
        """
        keep = self.fellows is None or self.fellows.leads
        tensors, ties, rest = weights_of(self.model, spent.tensors if spent else None, keep)
        names = names_of(self.model, self.optimizer)
        old, old_shards = (spent.trainer.get("optimizer"), spent.shards) if spent else (None, {})
        state, shards = split_state(self.optimizer, names, self.fellows, old_shards)
        trainer = {
            "position": position.to_dict(),
            "optimizer": host_copy(state, old),
            "names": names,
            "sharded": described(shards),
            "schedule": host_copy(self.schedule.state_dict()) if self.schedule else {},
            "scaler": host_copy(self.scaler.state_dict()),
            "extra_state": rest,
            "notes": dict(self.notes),
            "stream": self.stream.to_dict() if self.stream else None,
            "ema": {"updates": self.ema.updates} if self.ema else {},
        }
        check_readable(trainer)
        means = self.ema.tensors(spent.ema if spent else None, keep) if self.ema else {}
        return Snapshot(position.step, tensors, ties, trainer, about, shards, means)

    def restore(self, checkpoint: Checkpoint) -> Position:
        """Put everything back; returns where the run stood.

        Raises:
            UserError: where the checkpoint is of another architecture or optimizer.
        """
        trainer = checkpoint.trainer
        load_weights(self.model, checkpoint.tensors, str(checkpoint.path), trainer["extra_state"])
        try:
            names = names_of(self.model, self.optimizer)
            sharded = trainer.get("sharded")
            load_optimizer(self.optimizer, trainer["optimizer"], sharded, names, checkpoint.path / SHARDS)
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
        stream = trainer.get("stream")
        self.stream = StreamState(**stream) if stream else None
        if self.ema is not None:
            self._restore_ema(self.ema, checkpoint)
        return Position(**trainer["position"])

    def _restore_ema(self, ema: Ema, checkpoint: Checkpoint) -> None:
        """The saved average; where there is none, it begins with the weights of the next step."""
        if EMA in checkpoint.manifest["files"]:
            path = checkpoint.path / EMA
            ema.load(read_weights(path), int(checkpoint.trainer["ema"]["updates"]), str(path))
        elif self.fellows is None or self.fellows.leads:
            log.info("%s has no %s: the average begins with the weights of now", checkpoint.path, EMA)


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
            explain(
                seen,
                "a run that has saved at least once",
                next_step="start it anew in another folder, or remove this one",
            )
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
    """Writes a run's checkpoints; acts on rank 0 only, and with fellows on every rank.

    Args:
        folder: the folder of checkpoints.
        config: the section `checkpoint`.
        about: what every manifest holds.
        acts: whether this rank writes.
        fellows: those of the state that is saved.
    """

    def __init__(
        self,
        folder: Path,
        config: CheckpointConfig,
        about: Mapping[str, Any],
        acts: bool,
        fellows: Fellows | None = None,
    ) -> None:
        self.folder, self.config, self.about = folder, config, about
        self.acts = acts or fellows is not None
        self.saved: Position | None = None
        self.stall_s = 0.0
        self.failed: Written | None = None
        self._writer = Writer(folder, config.asynchronous, self._after, fellows)

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
