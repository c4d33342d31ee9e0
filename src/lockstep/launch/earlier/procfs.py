"""What Linux tells of a process in /proc: whose child it is, since when it runs, what it has open and mapped.

Read directly, file by file: a look at every process of the machine costs milliseconds. What cannot be read (another
user's, or gone meanwhile) counts as absent.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENDED = ("Z", "X", "x")


@dataclass(frozen=True)
class Process:
    """One process at one moment. start_ticks: clock ticks from boot to its start; with the pid it names one process
    for ever, which the pid alone does not. session: pid of its session's first process. uid: whose it seems to be."""

    pid: int
    parent: int
    session: int
    start_ticks: int
    uid: int

    @property
    def age_s(self) -> float:
        """Seconds since its start."""
        up_s = float((PROC / "uptime").read_text().split()[0])
        return max(0.0, up_s - self.start_ticks / _TICKS_PER_S)

    @property
    def command(self) -> str:
        """Its command line, or its name in brackets where it has none."""
        words = _read(self.pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
        return " ".join(words.split()) or f"[{_read(self.pid, 'comm').decode(errors='replace').strip()}]"

    @property
    def memory_bytes(self) -> int:
        """Resident memory, what is shared counted too."""
        fields = _read(self.pid, "statm").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0

    def variables(self) -> dict[str, str]:
        """The environment that it was *started* with: a forked process shows that of the program it came from."""
        pairs = (item.partition(b"=") for item in _read(self.pid, "environ").split(b"\0"))
        return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}

    def files(self) -> list[str]:
        """What its open files are called: paths, `socket:[inode]`, `pipe:[inode]`."""
        found = []
        try:
            with os.scandir(PROC / str(self.pid) / "fd") as entries:
                for entry in entries:
                    with suppress(OSError):  # closed meanwhile
                        found.append(os.readlink(entry.path))  # noqa: PTH115  # many of them: speed counts
        except OSError:
            return found
        return found

    def mapped(self) -> dict[str, int]:
        """Bytes of its memory for each file that they come from."""
        sizes: dict[str, int] = {}
        for line in _read(self.pid, "maps").decode(errors="replace").splitlines():
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and parts[5].startswith("/"):
                low, _, high = parts[0].partition("-")
                sizes[parts[5]] = sizes.get(parts[5], 0) + int(high, 16) - int(low, 16)
        return sizes

    def has_torch(self) -> bool:
        """Whether torch is loaded in it."""
        return b"/libtorch" in _read(self.pid, "maps")


def look(pid: int) -> Process | None:
    """One process; None if it is gone or has ended."""
    try:
        # The name in brackets may hold spaces and brackets itself.
        _, _, rest = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
        uid = (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
    fields = rest.split()
    if len(fields) < 20 or fields[0] in _ENDED:
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), uid)


def processes() -> dict[int, Process]:
    """Every process that runs, by its pid."""
    pids = [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208  # thrice as fast as iterdir
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def mine(process: Process) -> bool:
    """Whether it is of this user in every respect, and of this container (where pids mean the same)."""
    # The folder's owner is the effective user alone: a program may run for one user with the rights of another.
    lines = _read(process.pid, "status").decode(errors="replace").splitlines()
    uids = {int(word) for line in lines if line.startswith("Uid:") for word in line.split()[1:]}
    if process.uid != os.geteuid() or uids != {os.geteuid()}:
        return False
    try:
        return (PROC / str(process.pid) / "ns/pid").readlink() == (PROC / "self/ns/pid").readlink()
    except OSError:
        return False


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
