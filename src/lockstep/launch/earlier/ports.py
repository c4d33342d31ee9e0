"""Who listens on a port of this machine. The kernel tells the pid for processes of the same user only."""

import os
from dataclasses import dataclass

from lockstep.launch.earlier import procfs
from lockstep.launch.earlier.procfs import Process

_LISTENS = "0A"


@dataclass(frozen=True)
class Holder:
    """A process that listens on a port. pid: 0 where it is another user's, or in another container.

    age_s: seconds since it was started. command: its command line.
    """

    port: int
    pid: int = 0
    age_s: float = 0.0
    command: str = ""

    def __str__(self) -> str:
        if not self.pid:
            return f"port {self.port} is in use by a process of another user or container"
        return f"port {self.port} is in use by pid {self.pid}, {age(self.age_s)} old: {short(self.command)}"


def port_holder(port: int) -> Holder | None:
    """Who listens on this TCP port, on whatever address; None if nobody does. Takes milliseconds."""
    inodes = {inode for inode, number in listening("self").items() if number == port}
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in procfs.processes().values():
        if process.uid == os.geteuid() and wanted & set(process.files()) and procfs.mine(process):
            return Holder(port, process.pid, process.age_s, process.command)
    return Holder(port)


def ports_of(process: Process) -> list[int]:
    """The TCP ports that a process listens on."""
    sockets = {name for name in process.files() if name.startswith("socket:")}
    if not sockets:
        return []
    return sorted({port for inode, port in listening(str(process.pid)).items() if f"socket:[{inode}]" in sockets})


def listening(pid: str) -> dict[int, int]:
    """Inode and port of every listening TCP socket in the network that a process is in."""
    found = {}
    for table in ("tcp", "tcp6"):
        try:
            lines = (procfs.PROC / pid / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS:
                found[int(fields[9])] = int(fields[1].rpartition(":")[2], 16)
    return found


def age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `2 days`."""
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds // {'days': 86_400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def short(command: str, length: int = 100) -> str:
    """A command line that fits on a line."""
    return command if len(command) <= length else f"{command[: length - 4]} ..."
