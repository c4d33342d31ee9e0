"""`lockstep ...` as a process of its own, in a fraction of a second: forked from a server that has imported torch.

Nothing but the import is spared: the command line goes through `lockstep.cli.main`, ranks are started, exit codes are
those of the process.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.ranks import PRELOAD


@dataclass(frozen=True)
class Done:
    """How a command ended. `output` is what both streams show, in order of their own."""

    code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class Command:
    """A command that runs.

    Args:
        folder: where it is started; its streams are files beside it.
        argv: what stands behind `lockstep`.
        env: further variables.
        before: called in the new process first.
    """

    def __init__(
        self,
        folder: Path,
        *argv: str,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.streams = [folder.with_name(f"{folder.name}.{name}") for name in ("stdout", "stderr")]
        folder.mkdir(exist_ok=True)
        variables = {**os.environ, **(env or {})}
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self.process: ForkServerProcess = context.Process(
            target=_main, args=(list(argv), str(folder), variables, [str(one) for one in self.streams], before)
        )
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def until(self, reached: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait for something; the command must not end before."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            assert self.process.is_alive() and time.monotonic() < deadline, "".join(self.said())
            time.sleep(0.005)

    def said(self) -> list[str]:
        """What it has written to its two streams."""
        return [one.read_text() if one.exists() else "" for one in self.streams]

    def wait(self, timeout_s: float = 120) -> Done:
        """Wait for its end."""
        self.process.join(timeout_s)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        self.process.close()
        stdout, stderr = self.said()
        assert code is not None, f"still running after {timeout_s} s\n{stdout}{stderr}"
        return Done(code, stdout, stderr)


def lockstep(folder: Path, *argv: str, env: Mapping[str, str] | None = None, timeout_s: float = 120) -> Done:
    """Run `lockstep argv` in a folder to its end."""
    return Command(folder, *argv, env=env).wait(timeout_s)


def _main(
    argv: list[str], folder: str, variables: dict[str, str], streams: list[str], before: Callable[[], None] | None
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for number, (stream, name) in enumerate(zip((sys.stdout, sys.stderr), streams, strict=True), 1):
        stream.flush()
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    if before is not None:
        before()
    sys.argv = ["lockstep", *argv]
    from lockstep.cli import main

    main()
