"""Two hosts on one machine: network namespaces with a cable between them, which can be slow, lossy and cut."""

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_NAME = "lockstep-host"
_CLONE_NEWNET = 0x40000000
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def why_not() -> str:
    """Why this machine cannot have them; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)} (package iproute2)"
    name = f"lsprobe{uuid.uuid4().hex[:6]}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return ""


@dataclass
class TwoHosts:
    """hosts: names of the namespaces. interfaces: of the cable's ends, by host."""

    hosts: tuple[str, str]
    interfaces: tuple[str, str]
    addresses: tuple[str, str] = ADDRESSES

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """What runs `argv` on a host."""
        return ["ip", "netns", "exec", self.hosts[host], *argv]

    def entering(self, host: int) -> Callable[[], None]:
        """What moves the process that calls it to a host. It pickles."""
        return functools.partial(enter, self.hosts[host])

    def run(self, host: int, *argv: str) -> None:
        """Run a tool on a host; it must succeed."""
        subprocess.run(self.command(host, argv), check=True, capture_output=True)

    def limit(self, mbit_s: int) -> None:
        """Let both directions carry no more than so many Mbit/s."""
        for host, interface in enumerate(self.interfaces):
            rate = ("tbf", "rate", f"{mbit_s}mbit", "burst", "32kbit", "latency", "400ms")
            self.run(host, "tc", "qdisc", "replace", "dev", interface, "root", *rate)

    def cut(self, host: int = 1) -> None:
        """Pull the cable."""
        self.run(host, "ip", "link", "set", self.interfaces[host], "down")

    def mend(self, host: int = 1) -> None:
        """Put it in again."""
        self.run(host, "ip", "link", "set", self.interfaces[host], "up")


@contextlib.contextmanager
def two_hosts(delay_s: float = 0.0, loss: float = 0.0) -> Iterator[TwoHosts]:
    """Make two hosts, and remove them with all that runs on them, in every way out.

    Args:
        delay_s: of each packet, in each direction.
        loss: share of the packets that get lost.
    """
    _sweep()
    mark = uuid.uuid4().hex[:6]
    hosts = (f"{_NAME}.{os.getpid()}.{mark}a", f"{_NAME}.{os.getpid()}.{mark}b")
    interfaces = (f"cable{mark}a", f"cable{mark}b")
    made = TwoHosts(hosts, interfaces)
    with contextlib.ExitStack() as removed:
        for host in hosts:
            removed.callback(subprocess.run, ["ip", "netns", "del", host], check=False, capture_output=True)
            removed.callback(_end_all, host)
            _ip("netns", "add", host)
        if delay_s or loss:
            removed.enter_context(_slow_cable(made, delay_s, loss))
        else:
            ends = ("netns", hosts[0], "type", "veth", "peer", interfaces[1], "netns", hosts[1])
            _ip("link", "add", interfaces[0], *ends)
        for host, (interface, address) in enumerate(zip(interfaces, ADDRESSES, strict=True)):
            made.run(host, "ip", "link", "set", "lo", "up")
            made.run(host, "ip", "address", "add", f"{address}/24", "dev", interface)
            made.run(host, "ip", "link", "set", interface, "up")
        yield made


@contextlib.contextmanager
def _slow_cable(made: TwoHosts, delay_s: float, loss: float) -> Iterator[None]:
    ends = (made.hosts[0], made.interfaces[0], made.hosts[1], made.interfaces[1])
    argv = [sys.executable, str(Path(__file__).with_name("slow_cable.py")), *ends, str(delay_s), str(loss)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as cable:
        try:
            assert cable.stdout is not None and cable.stdout.readline() == "ready\n"
            yield
        finally:
            cable.kill()


def enter(host: str) -> None:
    """Move this thread, and the threads and processes that it starts from now on, to a host."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", host).open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {host}")


def _sweep() -> None:
    """Remove the hosts of a test run that was killed."""
    for place in Path("/run/netns").glob(f"{_NAME}.*"):
        if not psutil.pid_exists(int(place.name.split(".")[1])):
            _end_all(place.name)
            subprocess.run(["ip", "netns", "del", place.name], check=False, capture_output=True)


def _end_all(host: str) -> None:
    """Only what runs in this namespace, which nobody else knows."""
    found = subprocess.run(["ip", "netns", "pids", host], check=False, capture_output=True, text=True).stdout
    for pid in found.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)
