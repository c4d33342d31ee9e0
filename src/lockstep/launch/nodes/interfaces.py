"""Network interfaces of this machine: which one carries an address, and whether those that the user names exist."""

import ipaddress
import socket
from collections.abc import Iterable, Mapping

import psutil

from lockstep.core.errors import UserError, explain

GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
_LOOPBACK = "127.0.0.1"


def is_loopback(address: str) -> bool:
    """Whether an address leads to the machine that uses it (127.0.1.1 too)."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def addresses() -> dict[str, list[str]]:
    """Interfaces that have an IP address, with their addresses."""
    found: dict[str, list[str]] = {}
    for name, many in psutil.net_if_addrs().items():
        for one in many:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                found.setdefault(name, []).append(one.address.partition("%")[0])
    return found


def interface_of(address: str) -> str:
    """Name of the interface that carries an address of this machine; "" if none does."""
    wanted = _LOOPBACK if is_loopback(address) and ":" not in address else address.partition("%")[0]
    return next((name for name, many in addresses().items() if wanted in many), "")


def way_to(address: str) -> tuple[str, str]:
    """Interface and address of this machine from which packets to an address would leave; ("", "") without a route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing
            own = str(probe.getsockname()[0])
    except OSError:
        return "", ""
    return interface_of(own), own


def listed() -> str:
    """What there is, for a message: `eth0 10.0.0.1, lo 127.0.0.1`."""
    return ", ".join(f"{name} {many[0]}" for name, many in sorted(addresses().items())) or "none with an address"


def variables(interface: str) -> dict[str, str]:
    """What gloo and NCCL are told, so that both take this interface and no other (NCCL would take a prefix)."""
    return {GLOO: interface, NCCL: f"={interface}"} if interface else {}


def check_named(environ: Mapping[str, str], node: int, address: str = "") -> None:
    """Whether the interfaces that the user names exist here, and lead to the other nodes.

    Args:
        environ: where GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME are looked up.
        node: this machine, for the message.
        address: of this machine towards the others, as far as it is known: if it is no loopback address, `lo` is wrong.

    Raises:
        UserError: an interface does not exist, has no address, is loopback, or is written in the other one's syntax.
    """
    there = addresses()
    if gloo := environ.get(GLOO, ""):
        if gloo[0] in "^=":
            raise _wrong(GLOO, gloo, node, "one name, or several with commas: `^` and `=` are NCCL's syntax")
        names = gloo.split(",")
        for name in names:
            if name not in there:
                raise _wrong(GLOO, gloo, node, f"an interface of this machine that has an address; it has {listed()}")
        _not_only_loopback(GLOO, gloo, node, names, address)
    if nccl := environ.get(NCCL, ""):
        names = taken_by_nccl(nccl, there)
        if not names:
            raise _wrong(
                NCCL, nccl, node, f"it must leave an interface that has an address; this machine has {listed()}"
            )
        _not_only_loopback(NCCL, nccl, node, names, address)


def taken_by_nccl(pattern: str, names: Iterable[str]) -> list[str]:
    """NCCL's rules: prefixes with commas, `=` for whole names, `^` for all others."""
    exclude, exact = pattern.startswith("^"), pattern.lstrip("^").startswith("=")
    words = [word for word in pattern.lstrip("^=").split(",") if word]

    def fits(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [name for name in names if fits(name) != exclude]


def _not_only_loopback(variable: str, value: str, node: int, names: Iterable[str], address: str) -> None:
    if not address or is_loopback(address):
        return
    there = addresses()
    if all(is_loopback(one) for name in names for one in there[name]):
        raise _wrong(variable, value, node, f"not the loopback interface: the other nodes are reached from {address}")


def _wrong(variable: str, value: str, node: int, must: str) -> UserError:
    return UserError(
        explain(
            f"{variable} is {value!r}",
            must,
            f"node {node} ({socket.gethostname()})",
            f"unset {variable}, then the interface that carries the connection to the other nodes is taken",
        )
    )
