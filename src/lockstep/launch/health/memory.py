"""Memory of the machine or the container, and shared memory, through which loader workers pass their batches."""

import os
from pathlib import Path

import psutil

from lockstep.launch.health import cgroups
from lockstep.launch.health.check import Asked, Check, size

_SHM = Path("/dev/shm")
_GIB = 2**30
_RANK = _GIB  # torch with a small model


def checks(asked: Asked) -> list[Check]:
    """Memory that is left, and /dev/shm."""
    machine = psutil.virtual_memory()
    return [judge(asked, machine.total, machine.available, cgroups.memory()), shared()]


def judge(asked: Asked, total: int, available: int, limit: tuple[int, int] | None) -> Check:
    """total, available: bytes of the machine. limit: bytes that the group may use and has used, None without one."""
    seen = f"{size(available)} of {size(total)} available"
    if limit is not None and limit[0] < total:
        seen += f"; this container may use {size(limit[0])} and uses {size(limit[1])}"
        available = min(available, limit[0] - limit[1])
    if available < asked.ranks_per_node * _RANK:
        advice = f"{asked.ranks_per_node} ranks need about {asked.ranks_per_node} GiB and more: fewer ranks or workers"
        return Check("memory", "memory", "warn", seen, advice)
    return Check("memory", "memory", "ok", seen)


def shared(folder: Path = _SHM) -> Check:
    """/dev/shm: Docker gives a container 64 MiB, which a few batches fill (`bus error`)."""
    try:
        status = os.statvfs(folder)
    except OSError as error:
        seen = f"{folder}: {error.strerror}"
        return Check("memory", "shared memory", "fail", seen, "mount it (tmpfs): loader workers need it")
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return judge_shared(str(folder), total, free, os.access(folder, os.W_OK))


def judge_shared(name: str, total: int, free: int, writable: bool) -> Check:
    """total, free: bytes."""
    seen = f"{name}: {size(free)} of {size(total)} free"
    if not writable:
        return Check("memory", "shared memory", "fail", f"{name} cannot be written", f"chmod 1777 {name}")
    if total < _GIB:
        advice = "docker run --shm-size=8g (Kubernetes: an emptyDir with medium Memory at /dev/shm), or no workers"
        return Check("memory", "shared memory", "warn", seen, advice)
    if free < _GIB // 4:
        advice = "`lockstep doctor --clean` removes what dead runs have left; see `ls -l /dev/shm` for the rest"
        return Check("memory", "shared memory", "warn", seen, advice)
    return Check("memory", "shared memory", "ok", seen)
