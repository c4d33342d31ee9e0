"""Ranks that outlived their launcher: found by what the kernel says of them, named, and ended on demand.

A *stray* is a process of this user that was started as a rank, or by one, whose launcher is gone and whose run has no
living rank. It is found by three marks together, never by its name:

- it carries a launcher's variables (torchrun's, or LOCKSTEP_FAILURES), or has a record of `lockstep` open;
- torch is loaded in it or in what it has started;
- its parent is no launcher: a launcher is of this user and has torch loaded, or has started it in its own session.
"""

import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lockstep.launch.earlier import gpu_memory, procfs
from lockstep.launch.earlier.ports import age, ports_of, short
from lockstep.launch.earlier.procfs import Process
from lockstep.launch.record import FAILURES_ENV

CLEAN = "lockstep doctor --clean"
_TORCHRUN = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
_RECORD = re.compile(r"(/lockstep-[^/]+)/(\d+/)?rank-\d+\.crash\.txt")
_SHARED = "/dev/shm/torch_"
_GONE_S = 5.0
_DYING_S = 0.5


@dataclass(frozen=True)
class Stray:
    """A process of an earlier run. start_ticks: with the pid, the one process that was seen. holds: in words."""

    pid: int
    start_ticks: int
    age_s: float
    command: str
    rank: str
    holds: tuple[str, ...]

    def __str__(self) -> str:
        what = f"rank {self.rank}" if self.rank else "started by a rank"
        holds = ", ".join(self.holds)
        return f"pid {self.pid}, {what}, {age(self.age_s)} old, holds {holds}: {short(self.command)}"


def find(ask_driver: bool = True) -> list[Stray]:
    """All strays of this user, the oldest first.

    Args:
        ask_driver: ask nvidia-smi how much GPU memory each holds, which takes a second. Else open devices count.
    """
    table = procfs.processes()
    found = _strays(table)
    if not found:
        return []
    used = gpu_memory.by_pid() if ask_driver else {}
    named = [_describe(process, used.get(process.pid)) for process in found.values()]
    return sorted(named, key=lambda stray: (-stray.age_s, stray.pid))


def warn_of_strays() -> str:
    """What a launch says before it starts: one block that names the strays, or "".

    Takes milliseconds where there are none. Where there are, it looks again: ranks whose launcher has just died may be
    about to end by themselves.
    """
    if not find(ask_driver=False):
        return ""
    time.sleep(_DYING_S)
    found = find(ask_driver=False)
    if not found:
        return ""
    count = f"{len(found)} processes" if len(found) > 1 else "A process"
    lines = [f"{count} of an earlier run still run{'' if len(found) > 1 else 's'}, without a launcher:"]
    return "\n".join([*lines, *(f"  {stray}" for stray in found), f"  Next: `{CLEAN}` ends them"])


def end(strays: Iterable[Stray]) -> list[Stray]:
    """SIGKILL to each that is still the process it was, and wait for its end.

    Returns: those that are gone.
    """
    known = list(strays)
    for stray in known:
        _kill(stray)
    deadline = time.monotonic() + _GONE_S
    while any(map(_lives, known)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [stray for stray in known if not _lives(stray)]


def _lives(stray: Stray) -> bool:
    now = procfs.look(stray.pid)
    return now is not None and now.start_ticks == stray.start_ticks


def _kill(stray: Stray) -> None:
    try:
        handle = os.pidfd_open(stray.pid)
    except OSError:
        return
    try:
        # The handle stays with the process that it was opened for: looked at afterwards, the pid cannot change hands.
        now = procfs.look(stray.pid)
        if now is not None and now.start_ticks == stray.start_ticks and procfs.mine(now):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _strays(table: Mapping[int, Process]) -> dict[int, Process]:
    """The strays among all processes, with all that they have started."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    own = {process.pid: process for process in table.values() if process.uid == os.geteuid()}
    runs = {pid: run for pid, process in own.items() if (run := _run_of(process, table))}
    tops = {pid for pid in runs if own[pid].parent not in runs}
    lost = {pid for pid in tops if _without_launcher(own[pid], table)}
    living = {runs[pid] for pid in tops - lost}
    ourselves = _line(os.getpid(), table)
    found: dict[int, Process] = {}
    for top in lost:
        tree = [one for one in _tree(own[top], children) if one.uid == os.geteuid()]
        if runs[top] in living or ourselves & {one.pid for one in tree} or not any(one.has_torch() for one in tree):
            continue
        # It ends by itself with the last process that uses it, and removes shared memory then.
        found |= {one.pid: one for one in tree if "torch_shm_manager" not in one.command and procfs.mine(one)}
    return found


def _run_of(process: Process, table: Mapping[int, Process]) -> str:
    """Which run a process belongs to as a rank or as something that a rank has started; "" if to none."""
    variables = process.variables()
    if FAILURES_ENV in variables:
        return variables[FAILURES_ENV]
    if all(name in variables for name in _TORCHRUN):
        return ":".join(variables.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"))
    # A forked rank of ours shows its launcher's variables. Only what has left its parent's session can be a stray.
    parent = table.get(process.parent)
    if parent is None or parent.session == process.session:
        return ""
    records = (_RECORD.search(name) for name in process.files())
    return next((record[1] for record in records if record), "")


def _without_launcher(top: Process, table: Mapping[int, Process]) -> bool:
    parent = table.get(top.parent)
    if parent is None:
        return False  # the first of a container, or of a system: nobody's orphan
    if parent.session == top.session:
        return False  # a shell, a debugger or a script has started it
    return not (parent.uid == os.geteuid() and parent.has_torch())


def _tree(top: Process, children: Mapping[int, list[Process]]) -> list[Process]:
    below = [one for child in children.get(top.pid, []) for one in _tree(child, children)]
    return [top, *below]


def _line(pid: int, table: Mapping[int, Process]) -> set[int]:
    """A process and those that it comes from."""
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _describe(process: Process, gpu_mib: int | None) -> Stray:
    holds = [f"port {port}" for port in ports_of(process)]
    devices = gpu_memory.devices(process.files())
    if gpu_mib is not None:
        holds.append(f"{gpu_mib} MiB of GPU memory")
    elif devices:
        holds.append(f"GPU {', '.join(devices)}")
    shared = sum(size for name, size in process.mapped().items() if name.startswith(_SHARED))
    if shared:
        holds.append(f"{shared / 2**20:.0f} MiB of shared memory")
    holds.append(f"{process.memory_bytes / 2**20:.0f} MiB of memory")
    rank = process.variables().get("RANK", "")
    return Stray(process.pid, process.start_ticks, process.age_s, process.command, rank, tuple(holds))
