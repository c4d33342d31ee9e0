"""One fault, done for real: what the user reads, and how long it takes until nothing of the launch is left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.commands import Command, Done
from tests.launch.faults.programs import deeds
from tests.launch.faults.small_memory import join, small_memory
from tests.launch.faults.table import STALL_TIMEOUT_S, Fault, Verb

SHM = Path("/dev/shm")
PROGRAMS = Path(__file__).with_name("programs")
REPORT = re.compile(r"(do|does) not advance since|are all in .* none comes back|passed over a step", re.MULTILINE)


@dataclass
class Measured:
    """How it went. gone_s: from the deed until no process of the launch was left; reported_s: until the first word
    about it. code: of the launcher. left: what it left behind, in words."""

    text: str
    gone_s: float
    reported_s: float
    code: int
    left: list[str] = field(default_factory=list)

    @property
    def block(self) -> str:
        """The verdict: from the last line that is not indented."""
        lines = self.text.rstrip().split("\n")
        heads = [at for at, line in enumerate(lines) if line and not line[0].isspace()]
        return "\n".join(lines[heads[-1] :]) if heads else ""


class Case:
    """A launch with a fault that runs."""

    def __init__(self, folder: Path, verb: Verb, fault: Fault, num_ranks: int, group: Path | None = None) -> None:
        self.folder, self._fault = folder, fault
        self._shm = set(SHM.iterdir())
        temporary = folder.with_name(f"{folder.name}.tmp")
        temporary.mkdir(parents=True)
        self.temporary = temporary
        env = {
            "FAULT_FOLDER": str(folder),
            "FAULT_RANK": str(fault.rank),
            "TMPDIR": str(temporary),
            "OMP_NUM_THREADS": "1",
        }
        before = partial(prepare, fault.name, group)
        self.command = Command(folder, *_argv(verb, fault.name, num_ranks, folder), env=env, before=before)
        self._family: dict[int, psutil.Process] = {}

    def measure(self, timeout_s: float = 40.0) -> Measured:
        """Follow it to its end."""
        deadline, reported, struck = time.monotonic() + timeout_s, 0.0, False
        code = None
        while code is None and time.monotonic() < deadline:
            self._look()
            if not reported and REPORT.search("".join(self.command.said())):
                reported = time.time()
            if self._fault.name == "launcher" and not struck and self._struck() is not None:
                struck = True
                os.kill(self.command.pid, signal.SIGKILL)
            self.command.process.join(0.02)
            code = self.command.process.exitcode
        while (alive := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.01)
        over = time.time()
        done = self.command.wait(0.0 if code is None else 5.0) if code is not None else self._give_up()
        struck_at = self._struck() or over
        left = [f"process {one.pid}" for one in alive]
        left += [str(path) for path in sorted(set(SHM.iterdir()) - self._shm) if self._mine(path.name)]
        if self._fault.name != "launcher":  # its folder goes with the next launch
            # A library that is killed while it works leaves files of its own (`tmp...`).
            left += [str(path) for path in self.temporary.iterdir() if not path.name.startswith("tmp")]
        return Measured(done.output, over - struck_at, reported - struck_at if reported else 0.0, done.code, left)

    def _give_up(self) -> Done:
        """It hangs: what the launcher does goes into what it has said."""
        spy = [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(self.command.pid)]
        stack = subprocess.run(spy, capture_output=True, text=True, check=False).stdout
        with self.command.streams[1].open("a") as file:
            file.write(stack)
        for one in self._alive():
            with suppress(psutil.Error):
                one.kill()
        self.command.process.kill()
        return self.command.wait(10)

    def _struck(self) -> float | None:
        found = [float(path.read_text().split()[0]) for path in self.folder.glob("injected-*")]
        return min(found, default=None)

    def _mine(self, name: str) -> bool:
        return any(str(pid) in name for pid in self._family)

    def _look(self) -> None:
        with suppress(psutil.Error):
            for one in psutil.Process(self.command.pid).children(recursive=True):
                self._family.setdefault(one.pid, one)

    def _alive(self) -> list[psutil.Process]:
        found = []
        for one in self._family.values():
            with suppress(psutil.Error):
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found


def done_to(folder: Path, fault: Fault, num_ranks: int) -> dict[Verb, Measured]:
    """Do it in a stranger's script and in a recipe, as far as it can happen there: at the same time where it waits."""
    found: dict[Verb, Measured] = {}
    with small_memory() if fault.name == "out_of_memory" else nullcontext(None) as group:
        if fault.name == "out_of_memory" and group is None:
            pytest.skip("no control group with a limit may be made here")
        if fault.stall:
            started = {verb: Case(folder / verb, verb, fault, num_ranks) for verb in fault.verbs}
            with ThreadPoolExecutor() as pool:
                results = {verb: pool.submit(case.measure) for verb, case in started.items()}
            return {verb: result.result() for verb, result in results.items()}
        for verb in fault.verbs:
            found[verb] = Case(folder / verb, verb, fault, num_ranks, group).measure()
    return found


def _argv(verb: Verb, fault: str, num_ranks: int, folder: Path) -> list[str]:
    options = ["--nproc", str(num_ranks), "--stall-timeout", str(STALL_TIMEOUT_S)]
    if verb == "run":
        return ["run", *options, "--log-dir", str(folder / "logs"), str(PROGRAMS / "victim.py"), fault]
    config = [
        f"recipe={PROGRAMS / 'faulty.py'}:Faulty",
        f"options.fault={fault}",
        f"run.dir={folder / 'run'}",
        f"batch.per_rank={deeds.BATCH}",
        "log.tensorboard=off",
        "run.threads=1",
        "precision=fp32",
    ]
    if fault.startswith("worker_"):
        config.append("data.workers=1")
    if fault == "evaluates_for_ever":
        config.append("evaluate.every_steps=20")
    return ["train", *options, *config]


def prepare(fault: str, group: Path | None) -> None:
    """In the launcher: temporary files go to the case's own folder; an evaluation is reported after 3 s, not 60 s."""
    tempfile.tempdir = None
    if group is not None:
        join(group)
    if fault == "evaluates_for_ever":
        from lockstep.launch import supervision

        supervision.Limits = partial(supervision.Limits, evaluate_s=3.0)  # type: ignore[misc,assignment]
