"""The numbers of a run: metrics.jsonl, and TensorBoard where it is installed. Written by rank 0."""

import importlib.util
import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from lockstep.core.errors import UserError, explain
from lockstep.core.files import write_text

log = logging.getLogger("lockstep")

Value = float | int | str | list[float]


class Journal:
    """Writes each record to both logs. A full disk costs records, and one warning, but not the run.

    Args:
        folder: the run's folder.
        tensorboard: `auto` writes it where the package is installed.
        resumed_at: optimizer steps done by the checkpoint a run goes on from; what was logged after it is dropped,
            since those steps are done again.
        evaluated: whether that checkpoint was saved after the evaluation of its step; if not, it is done again too.
    """

    def __init__(
        self,
        folder: Path,
        tensorboard: Literal["auto", "on", "off"],
        resumed_at: int | None = None,
        evaluated: bool = True,
    ) -> None:
        path = folder / "metrics.jsonl"
        if resumed_at is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            write_text(path, "".join(kept_lines(text, resumed_at, evaluated)))
        self._file = path.open("a", encoding="utf-8")
        self._board: Any = None
        self._warned = False
        self._wanted = tensorboard_wanted(tensorboard)
        self._folder = folder / "tensorboard"
        self._purge = None if resumed_at is None else resumed_at + 1

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
        with self._surviving(self._folder):
            if self._wanted:
                board = self._open_board()
                for name, value in values.items():
                    for curve, number in _curves(name, value):
                        board.add_scalar(curve, number, step)

    def close(self) -> None:
        """Flush and close both logs."""
        with self._surviving(self._file.name):
            self._file.close()
        with self._surviving(self._folder):
            if self._board is not None:
                self._board.close()

    @contextmanager
    def _surviving(self, place: Path | str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                log.warning("%s cannot be written: %s; training goes on", place, error.strerror)
            self._warned = True

    def _open_board(self) -> Any:
        # Imported at the first record: the package takes longer to import than a first step.
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._folder), purge_step=self._purge)
        return self._board


def tensorboard_wanted(choice: Literal["auto", "on", "off"]) -> bool:
    """Whether to write TensorBoard logs.

    Raises:
        UserError: where they are asked for and the package is missing.
    """
    installed = importlib.util.find_spec("tensorboard") is not None
    if choice == "on" and not installed:
        next_step = "pip install 'torch-lockstep[tensorboard]', or log.tensorboard=auto"
        raise UserError(explain("log.tensorboard=on, but tensorboard is not installed", next_step=next_step))
    return choice != "off" and installed


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
