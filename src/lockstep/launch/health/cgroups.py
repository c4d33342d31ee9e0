"""Limits that a container or a scheduler sets on this process: control groups of either version."""

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_NONE = 1 << 60  # version 1 says "no limit" by a number as large as this


def cpus(root: Path = ROOT, own: str | None = None) -> float | None:
    """CPU cores' worth of time that may be used; None without a limit."""
    limits = []
    for folder in _folders(root, own, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory(root: Path = ROOT, own: str | None = None) -> tuple[int, int] | None:
    """Bytes of memory that may be used, and bytes that are used already; None without a limit."""
    found = []
    for folder in _folders(root, own, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            text = _text(folder / limit)
            if text.isdecimal() and int(text) < _NONE:
                found.append((int(text), int(_text(folder / used) or 0)))
    return min(found, default=None)


def processes(root: Path = ROOT, own: str | None = None) -> tuple[int, int] | None:
    """How many processes and threads there may be, and how many there are; None without a limit."""
    found = []
    for folder in _folders(root, own, "pids"):
        text = _text(folder / "pids.max")
        if text.isdecimal():
            found.append((int(text), int(_text(folder / "pids.current") or 0)))
    return min(found, key=lambda one: one[0] - one[1], default=None)


def _folders(root: Path, own: str | None, controller: str) -> list[Path]:
    """The group of this process and those above it: the narrowest limit counts."""
    text = _text(Path("/proc/self/cgroup")) if own is None else own
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        parts = Path(os.path.normpath(path)).parts[1:]
        found += [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
