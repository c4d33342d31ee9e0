"""Ports: whether one can be bound, and who has the one at which the ranks are to meet."""

import socket
from pathlib import Path

from lockstep.launch.earlier.ports import port_holder
from lockstep.launch.health.check import Asked, Check
from lockstep.launch.nodes import DEFAULT_PORT

_TORCHRUNS = 29500
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def checks(asked: Asked) -> list[Check]:
    """A free port for one machine's ranks, and the stated one."""
    return [_any_port(), stated(asked, _local_range())]


def _any_port() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return Check("ports", "free port", "ok", "a port of 127.0.0.1 can be bound")
    except OSError as error:
        seen = f"no port of 127.0.0.1 can be bound: {error.strerror}"
        return Check("ports", "free port", "fail", seen, "bring up the loopback interface: ip link set lo up")


def stated(asked: Asked, local_range: tuple[int, int]) -> Check:
    """The port that is named, else torchrun's. local_range: the ports that outgoing connections get."""
    default = DEFAULT_PORT if asked.several else _TORCHRUNS
    text = str(asked.nodes.port or asked.environ.get("MASTER_PORT") or default)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        seen = f"MASTER_PORT is {text!r}"
        return Check("ports", "MASTER_PORT", "fail", seen, "a number from 1 to 65535, or unset it")
    named = f"MASTER_PORT {text}" if text == asked.environ.get("MASTER_PORT") else f"port {text}"
    hosts = not asked.several or asked.nodes.node == 0
    holder = port_holder(int(text)) if hosts else None
    if holder is not None:
        advice = "one machine needs no fixed port: `lockstep run`, or `torchrun --standalone`"
        if asked.several:
            advice = "take another port on every node, or end that process"
        return Check("ports", named, "fail" if asked.several else "warn", str(holder), advice)
    if local_range[0] <= int(text) <= local_range[1]:
        seen = f"free, but of the range that outgoing connections get ({local_range[0]}-{local_range[1]})"
        return Check(
            "ports", named, "warn", seen, f"take one below {local_range[0]}: such a port may be taken any time"
        )
    return Check("ports", named, "ok", "free" if hosts else "node 0 hosts the meeting")


def _local_range() -> tuple[int, int]:
    try:
        low, high = _RANGE.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999
