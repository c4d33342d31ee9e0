"""The host name: whether it resolves, how fast, and to an address that other machines can reach."""

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence

import psutil

from lockstep.launch.health.check import Asked, Check

_PATIENCE_S = 5.0
_SLOW_S = 1.0


def checks(asked: Asked) -> list[Check]:
    """What this machine's own name resolves to."""
    name = socket.gethostname()
    began = time.monotonic()
    found = resolve(name)
    return [judge(asked, name, found, time.monotonic() - began, own_addresses())]


def resolve(name: str, patience_s: float = _PATIENCE_S) -> list[str] | None:
    """Its addresses, empty where there are none; None if that is not known in time."""
    found: list[str] = []
    done = threading.Event()

    def ask() -> None:
        try:
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        except OSError:
            found.clear()
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    return sorted(set(found)) if done.wait(patience_s) else None


def own_addresses() -> set[str]:
    """Every address of this machine."""
    return {entry.address.split("%")[0] for entries in psutil.net_if_addrs().values() for entry in entries}


def judge(asked: Asked, name: str, found: Sequence[str] | None, took_s: float, own: set[str]) -> Check:
    """found: addresses of the name, None if the look-up did not end. On one machine no name is needed."""
    seen, advice = f"`{name}` resolves to {', '.join(found or ())}", ""
    stated = asked.environ.get("GLOO_SOCKET_IFNAME") or asked.environ.get("NCCL_SOCKET_IFNAME")
    if found is None:
        seen, advice = f"`{name}` was not resolved in {took_s:.0f} s", "mend the name server, or add it to /etc/hosts"
    elif not found:
        seen, advice = f"`{name}` does not resolve", "add it to /etc/hosts with an address that other machines reach"
    elif all(ipaddress.ip_address(address.split("%")[0]).is_loopback for address in found):
        seen += ", which only this machine can reach"
        advice = "torchrun needs GLOO_SOCKET_IFNAME and an address as master; `lockstep run` states both by itself"
    elif not set(found) & own:
        seen += ", none of them of this machine"
        advice = "mend /etc/hosts or the name server; until then state GLOO_SOCKET_IFNAME"
    elif took_s > _SLOW_S:
        seen += f", after {took_s:.1f} s"
        advice = "a slow name server delays every start: add the name to /etc/hosts"
    if not advice:
        return Check("network", "host name", "ok", seen)
    if not asked.several:
        return Check("network", "host name", "ok", f"{seen}; of no matter on one machine")
    return Check("network", "host name", "ok" if stated else "warn", seen, "" if stated else advice)
