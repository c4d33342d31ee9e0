"""Network interfaces, and the variables that choose among them."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.launch.health.check import Asked, Check
from lockstep.launch.nodes.interfaces import GLOO, NCCL, taken_by_nccl, way_to

_SYS = Path("/sys/class/net")


@dataclass(frozen=True)
class Interface:
    """addresses: IPv4 first. mtu: bytes in a packet. mbit_per_s: 0 where the kernel does not know. real: a device,
    not a bridge, a tunnel or a pair in software, whose stated speed means nothing."""

    name: str
    addresses: tuple[str, ...]
    up: bool
    mtu: int
    mbit_per_s: int
    real: bool

    @property
    def loopback(self) -> bool:
        """Whether it reaches this machine only."""
        return any(address.startswith("127.") for address in self.addresses) or self.name == "lo"

    def __str__(self) -> str:
        speed = f", {self.mbit_per_s} Mbit/s" if self.mbit_per_s else ""
        where = " ".join(self.addresses) or "no address"
        return f"{self.name} {where} ({'up' if self.up else 'DOWN'}, MTU {self.mtu}{speed})"


def interfaces() -> list[Interface]:
    """All of this machine."""
    stats = psutil.net_if_stats()
    found = []
    for name, entries in psutil.net_if_addrs().items():
        kinds = (socket.AF_INET, socket.AF_INET6)
        addresses = [entry.address.split("%")[0] for kind in kinds for entry in entries if entry.family == kind]
        if name in stats:
            real = (_SYS / name / "device").exists()
            found.append(Interface(name, tuple(addresses), stats[name].isup, stats[name].mtu, _speed(name), real))
    return found


def _speed(name: str) -> int:
    try:
        return max(0, int((_SYS / name / "speed").read_text()))
    except (OSError, ValueError):
        return 0


def checks(asked: Asked) -> Iterator[Check]:
    """What there is, and whether the variables fit it."""
    found = interfaces()
    yield listed(found, asked)
    for name, judge in ((GLOO, gloo), (NCCL, nccl)):
        if text := asked.environ.get(name):
            yield judge(text, found, asked.several)
    if asked.several and asked.nodes.host:
        yield route(asked.nodes.host)


def listed(found: Sequence[Interface], asked: Asked) -> Check:
    """One line for all of them."""
    seen = "; ".join(str(one) for one in found if one.addresses)
    outside = [one for one in found if one.up and one.addresses and not one.loopback]
    if not any(one.loopback and one.up for one in found):
        return Check("network", "interfaces", "fail", f"{seen}; no loopback", "ip link set lo up")
    if asked.several and not outside:
        return Check("network", "interfaces", "fail", seen, "no interface leads to other machines: bring one up")
    return Check("network", "interfaces", "ok", seen)


def gloo(text: str, found: Sequence[Interface], several: bool) -> Check:
    """GLOO_SOCKET_IFNAME: whole names, with commas between."""
    if text[0] in "^=":
        advice = f"`{text[0]}` is the syntax of {NCCL}: gloo takes a whole name, one of {_names(found)}"
        return Check("network", GLOO, "fail", f"{text}: gloo looks for an interface of that name", advice)
    chosen = [one for one in found if one.name in text.split(",")]
    lacking = [word for word in text.split(",") if word not in {one.name for one in chosen}]
    return _judge(GLOO, text, chosen, lacking, found, several)


def nccl(text: str, found: Sequence[Interface], several: bool) -> Check:
    """NCCL_SOCKET_IFNAME: beginnings of names; `=` before it: whole names; `^`: all but these; both may stand."""
    taken = taken_by_nccl(text, [one.name for one in found if one.addresses])
    chosen = [one for one in found if one.name in taken]
    return _judge(NCCL, text, chosen, [] if chosen else [text], found, several)


def _judge(
    name: str, text: str, chosen: Sequence[Interface], lacking: Sequence[str], found: Sequence[Interface], several: bool
) -> Check:
    if lacking:
        seen = f"{text}: this host has no {', '.join(lacking)}; it has {_names(found)}"
        return Check("network", name, "fail", seen, "name one of them, or unset it")
    usable = [one for one in chosen if one.up and one.addresses]
    if not usable:
        seen = f"{text}: {'; '.join(map(str, chosen))}"
        return Check("network", name, "fail", seen, "it needs an address and must be up: ip link set NAME up")
    if several and all(one.loopback for one in usable):
        seen = f"{text}: it reaches this machine only"
        return Check("network", name, "fail", seen, f"name one that leads to the others: {_names(found)}")
    return Check("network", name, "ok", f"{text}: {'; '.join(map(str, usable))}")


def route(host: str) -> Check:
    """The interface through which node 0 is reached."""
    try:
        name, address = way_to(str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]))
    except OSError as error:
        advice = "give an address, or add the name to /etc/hosts on every node: --master ADDRESS"
        return Check("network", "way to node 0", "fail", f"{host}: {error.strerror or error}", advice)
    if not address:
        advice = "give an address that this machine has a route to: --master ADDRESS"
        return Check("network", "way to node 0", "fail", f"{host}: no route", advice)
    return Check("network", "way to node 0", "ok", f"{host} is reached from {address} ({name or 'no known interface'})")


def _names(found: Sequence[Interface]) -> str:
    return ", ".join(one.name for one in found)
