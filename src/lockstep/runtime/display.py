"""What rank 0 shows: a progress bar with time left on a terminal, plain lines elsewhere."""

import logging
import sys
import time
from collections.abc import Mapping
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

log = logging.getLogger("lockstep")

# Seconds between two plain lines, so that a log file is not all steps.
PLAIN_EVERY_S = 5.0


class Display:
    """Shows steps and evaluations.

    Args:
        total_steps: optimizer steps of the run, None where a stream does not tell.
        done: steps done before this start.
        mode: `auto` draws a bar where the output is a terminal.
        speaks: whether this rank shows anything.
    """

    def __init__(self, total_steps: int | None, done: int, mode: Literal["auto", "on", "off"], speaks: bool) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total, self._speaks = total_steps, speaks
        self._last_line = time.monotonic()
        if speaks and (mode == "on" or (mode == "auto" and sys.stdout.isatty())):
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
            )
            self._bar = Progress(*columns, console=Console(file=sys.stdout))
            self._task = self._bar.add_task("training", total=total_steps, completed=done, numbers="")
            self._bar.start()

    def step(self, step: int, epoch: int, values: Mapping[str, float | list[float]]) -> None:
        """Show the numbers of a logged step."""
        numbers = f"loss {values['loss']:.4f}, {values['samples_per_s']:.0f} samples/s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, description=f"epoch {epoch + 1}", numbers=numbers)
        elif self._speaks and time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            total = f"/{self._total}" if self._total else ""
            log.info("epoch %d, step %d%s: %s", epoch + 1, step, total, numbers)

    def advance(self, step: int) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step)

    def close(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar.stop()
