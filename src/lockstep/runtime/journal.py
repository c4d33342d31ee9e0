"""The numbers of a run: metrics.jsonl, TensorBoard and the trackers. Written by rank 0."""

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lockstep.core.files import write_text
from lockstep.runtime.trackers import About
from lockstep.runtime.trackers.courier import END_FAILED_S, END_S, Courier
from lockstep.runtime.trackers.tensor_board import TensorBoard

log = logging.getLogger("lockstep")

Value = float | int | str | list[float]


class Journal:
    """Writes each record to all logs. A full disk, or a tracker that fails, costs records, and one warning each.

    Args:
        folder: the run's folder.
        tensorboard: whether to write TensorBoard files.
        couriers: the ways to the trackers.
        resumed_at: optimizer steps done by the checkpoint a run goes on from; what was logged after it is dropped,
            since those steps are done again.
        evaluated: whether that checkpoint was saved after the evaluation of its step; if not, it is done again too.
    """

    def __init__(
        self,
        folder: Path,
        tensorboard: bool,
        couriers: Sequence[Courier] = (),
        resumed_at: int | None = None,
        evaluated: bool = True,
    ) -> None:
        path = folder / "metrics.jsonl"
        if resumed_at is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            write_text(path, "".join(kept_lines(text, resumed_at, evaluated)))
        self._file = path.open("a", encoding="utf-8")
        self._board = TensorBoard(folder, None if resumed_at is None else resumed_at + 1) if tensorboard else None
        self._couriers = list(couriers)
        self._begun: list[Courier] = []
        self._warned = False

    def begin(self, about: About) -> None:
        """Start the trackers.

        Raises:
            UserError, RunError: one cannot be started; those that are have been ended again.
        """
        try:
            for one in self._couriers:
                one.begin(about)
                self._begun.append(one)
        except BaseException:
            self.close("failed", {})
            raise

    def record(self, step: int, values: Mapping[str, Value]) -> None:
        """Append one record.

        Args:
            step: optimizer steps done.
            values: numbers by name; lists (one value a rank) become one curve each.
        """
        with self._surviving(self._file.name):
            self._file.write(
                json.dumps({"step": step, **{name: strict(value) for name, value in values.items()}}) + "\n"
            )
            self._file.flush()
        curves = dict(curve for name, value in values.items() for curve in _curves(name, value))
        if self._board is not None:
            with self._surviving(self._board.folder):
                self._board.record(step, curves)
        for one in self._begun:
            one.record(step, curves)

    def close(self, ending: str, results: Mapping[str, float]) -> None:
        """Write what is left and close all logs; a tracker that does not answer is left alone after a while.

        Args:
            ending: how the run has ended, `failed` after an error.
            results: the last evaluation.
        """
        with self._surviving(self._file.name):
            self._file.close()
        if self._board is not None:
            with self._surviving(self._board.folder):
                self._board.close()
        for one in self._begun:
            one.finish(ending, results)
        deadline = time.monotonic() + (END_FAILED_S if ending in ("failed", "preempted") else END_S)
        for one in self._begun:
            one.wait(deadline)
        self._begun = []

    @contextmanager
    def _surviving(self, place: Path | str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                log.warning("%s cannot be written: %s; training goes on", place, error.strerror)
            self._warned = True


def kept_lines(text: str, resumed_at: int, evaluated: bool = True) -> list[str]:
    """The whole lines of a metrics.jsonl up to a step, with or without its evaluation."""
    kept = []
    for line in text.splitlines(keepends=True):
        try:
            record = json.loads(line)
            early = record["step"] < resumed_at or (
                record["step"] == resumed_at and (evaluated or "val/loss" not in record)
            )
        except (ValueError, KeyError, TypeError):
            continue
        if early and line.endswith("\n"):
            kept.append(line)
    return kept


def strict(value: Value) -> Value | list[float | None] | None:
    """A value as JSON has it: no number where it is not finite."""
    if isinstance(value, list):
        return [item if math.isfinite(item) else None for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _curves(name: str, value: Value) -> list[tuple[str, float]]:
    if isinstance(value, list):
        return [(f"{name}/rank_{i}", item) for i, item in enumerate(value)]
    return [] if isinstance(value, str) else [(name, float(value))]
