"""Who sent SIGKILL: the kernel, because memory ran out, or somebody else. From the kernel, where it may be asked."""

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lockstep.launch.record import Failure

_KMSG = Path("/dev/kmsg")
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_KILLED = re.compile(r"Killed process (?P<pid>\d+)")
_RSS = re.compile(r"anon-rss:(\d+)kB")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? (\d+)\) (is killed by signal: Killed|exited unexpectedly)")
_SLACK_US = 5_000_000


class Witness:
    """Remembers how often the kernel had ended processes when the ranks were started.

    Args:
        kmsg, proc, cgroups: where the kernel's log, /proc and the control groups are.
    """

    def __init__(self, kmsg: Path = _KMSG, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> None:
        self._kmsg, self._proc, self._cgroups = kmsg, proc, cgroups
        self._since_us = time.monotonic_ns() // 1000 - _SLACK_US
        self._before = self._counts()

    def killer(self, pid: int) -> str:
        """Who ended a process by SIGKILL, as the rest of a sentence; "" where nothing is known."""
        line = self._line(pid)
        if line:
            what = "the memory limit of its control group was reached" if "cgroup" in line else "memory ran out"
            held = _RSS.search(line)
            took = f"; it held {int(held[1]) / 1024**2:.1f} GiB" if held else ""
            return f"by the kernel's out-of-memory killer ({what}{took})"
        now = self._counts()
        risen = {name for name in now if now[name] > self._before.get(name, now[name])}
        if "group" in risen:
            return "by the kernel's out-of-memory killer (the memory limit of its control group was reached)"
        if "machine" in risen:
            return "probably by the kernel's out-of-memory killer, which has ended a process of this machine meanwhile"
        return "from outside (the kernel has ended no process for lack of memory)" if "machine" in now else ""

    def of_a_worker(self, failure: Failure) -> Failure:
        """The failure of a rank whose DataLoader worker was killed, with the killer in its message."""
        found = _WORKER.search(failure.message)
        if found is None:
            return failure
        killer = self.killer(int(found[1]))
        if found[2] == "exited unexpectedly" and "by the kernel's" not in killer:
            return failure  # torch has not heard how
        message = f"a DataLoader worker (pid {found[1]}) was killed by SIGKILL{': ' * bool(killer)}{killer}"
        # The rank heard of it by a signal: the line that it was at has nothing to do with it.
        return replace(failure, message=message, where="", traceback="")

    def _counts(self) -> Mapping[str, int]:
        """Processes ended for lack of memory: on the `machine`, and in this process's control `group`."""
        files = {"machine": self._proc / "vmstat", "group": self._group_file()}
        found = {}
        for name, file in files.items():
            with suppress(OSError):
                if count := _COUNT.search(file.read_text(encoding="utf-8")):
                    found[name] = int(count[1])
        return found

    def _group_file(self) -> Path:
        own = ""
        with suppress(OSError):
            own = (self._proc / "self" / "cgroup").read_text(encoding="utf-8")
        for line in own.splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                return self._cgroups / "memory" / path.lstrip("/") / "memory.oom_control"
            if not controllers and "memory" not in own:
                return self._cgroups / path.lstrip("/") / "memory.events"
        return self._cgroups / "memory.events"

    def _line(self, pid: int) -> str:
        """What the kernel's log says about the end of a process; "" where nothing or nothing that may be read."""
        with suppress(OSError):
            log = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK)
            try:
                return self._search(log, pid)
            finally:
                os.close(log)
        return ""

    def _search(self, log: int, pid: int) -> str:
        while True:
            try:
                entry = os.read(log, 8192).decode(errors="replace")  # one record a read
            except BlockingIOError:
                return ""
            except BrokenPipeError:
                continue  # overwritten meanwhile: the next read goes on behind
            if not entry:
                return ""
            head, _, text = entry.partition(";")
            found = _KILLED.search(text)
            if found and int(found["pid"]) == pid and int(head.split(",")[2]) >= self._since_us:
                return text
