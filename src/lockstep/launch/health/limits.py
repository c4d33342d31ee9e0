"""How many open files and processes the ranks may have."""

import resource
from pathlib import Path

from lockstep.launch.health import cgroups
from lockstep.launch.health.check import Asked, Check

_FILES = 4096
_LEFT = 64  # processes and threads that a rank with its workers may need
_INFINIBAND = Path("/sys/class/infiniband")


def checks(asked: Asked) -> list[Check]:
    """Open files, processes, and locked memory where there is InfiniBand."""
    found = [files(*resource.getrlimit(resource.RLIMIT_NOFILE))]
    limit = cgroups.processes()
    if limit is not None:
        found.append(processes(asked, *limit))
    if _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir()):
        found.append(locked(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]))
    return found


def files(soft: int, hard: int) -> Check:
    """soft: limit in force. hard: what it can be raised to; -1 is no limit."""
    if 0 <= soft < _FILES:
        most = "" if hard < 0 else f" (at most {hard} without root)"
        advice = f"ulimit -n 65536{most}: loader workers pass each tensor as an open file"
        return Check("limits", "open files", "fail" if soft < 256 else "warn", f"{soft} in a process", advice)
    return Check("limits", "open files", "ok", f"{'unlimited' if soft < 0 else soft} in a process")


def processes(asked: Asked, most: int, now: int) -> Check:
    """most: processes and threads that the control group may have. now: that it has."""
    seen = f"{now} of {most} processes and threads of this control group"
    if most - now < _LEFT * asked.ranks_per_node:
        advice = "raise the limit (docker run --pids-limit), or fewer ranks and workers"
        return Check("limits", "processes", "warn", seen, advice)
    return Check("limits", "processes", "ok", seen)


def locked(soft: int) -> Check:
    """Memory that may be locked: InfiniBand registers its buffers so. Bytes; -1 is no limit."""
    if soft >= 0:
        advice = "ulimit -l unlimited (docker run --ulimit memlock=-1)"
        return Check("limits", "locked memory", "warn", f"{soft} bytes, and this machine has InfiniBand", advice)
    return Check("limits", "locked memory", "ok", "unlimited")
