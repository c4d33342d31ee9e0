"""How far a scan is, on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_EVERY_S = 5.0


class Bar:
    """Shows samples.

    Args:
        total: samples of all splits, None where a stream does not tell.
    """

    def __init__(self, total: int | None) -> None:
        self.total, self.done, self.found = total, 0, 0
        self._start = self._last = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            columns = (
                TextColumn("scan"),
                BarColumn(),
                TextColumn("{task.fields[words]} left"),
                TimeRemainingColumn(),
            )
            # Drawn from `show` alone: a thread that draws would hold locks while workers are forked.
            self._bar = Progress(*columns, console=Console(file=sys.stderr), auto_refresh=False)
            self._task = self._bar.add_task("", total=total, words="")
            self._bar.start()

    def show(self, begun: int) -> None:
        """Show where the scan is.

        Args:
            begun: samples in blocks that are not done.
        """
        now = time.monotonic()
        at = self.done + begun if self.total is None else min(self.total, self.done + begun)
        words = f"{at}{'' if self.total is None else f'/{self.total}'} samples, {self.found} found"
        if self._bar is not None:
            self._bar.update(self._task, completed=at, words=words, refresh=True)
        elif now - self._last >= PLAIN_EVERY_S:
            self._last = now
            speed = at / (now - self._start)
            left = f", {(self.total - at) / speed:.0f} s left" if self.total is not None and at else ""
            print(f"scan: {words}, {speed:.0f} samples/s{left}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self.show(0)
            self._bar.stop()
