"""The messages of a meeting that fails: who is missing, what was tried, what to look at."""

import errno
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import psutil

from lockstep.core.errors import RunError, UserError, explain
from lockstep.launch.nodes.interfaces import is_loopback, listed, way_to

Kind = Literal["name", "refused", "route", "silent", "closed", "foreign", "other"]


class StoppedError(RunError):
    """A signal came while the nodes were waiting for each other."""


@dataclass(frozen=True)
class Try:
    """One try to reach node 0 that failed. address: numeric, "" if the name has none. detail: the system's words."""

    kind: Kind
    address: str = ""
    detail: str = ""


def kind_of(error: OSError) -> Kind:
    """What an error of `connect` means."""
    if isinstance(error, socket.gaierror):
        return "name"
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return "silent"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN):
        return "route"
    return "closed" if isinstance(error, ConnectionError) else "other"


# kind -> what it means, what to do
_MEANING: dict[Kind, tuple[str, str]] = {
    "name": (
        "this name does not resolve here",
        "give `--master` the numeric address of node 0, or put the name into /etc/hosts or the DNS",
    ),
    "refused": (
        "connection refused: a machine answers there, but nothing listens on that port",
        "start node 0 (`--node-rank 0`) with the same port, and look at what it says; a firewall can refuse too",
    ),
    "route": (
        "no route: this machine has no way to that address, or the address is not in use",
        "look at the cable, the address and `ip route get ADDRESS`",
    ),
    "silent": (
        "no answer: packets to that address get lost",
        "a firewall drops them (open the port, see docs/two-machines.md), the machine is off, or the address is wrong",
    ),
    "closed": (
        "the connection was accepted and closed at once",
        "look at what node 0 says; a port that is forwarded to a container does this while node 0 is not started",
    ),
    "foreign": (
        "another program listens there",
        "choose another port for `--master HOST:PORT` on all nodes, or correct HOST",
    ),
    "other": ("the connection failed", "look at the system's words above"),
}


def not_reached(node: int, host: str, port: int, wait_s: float, last: Try) -> RunError:
    """A node could not speak with node 0 in time, or found another program there."""
    meaning, advice = _MEANING[last.kind]
    target = f"{host}:{port}" + (f" ({last.address})" if last.address not in ("", host) else "")
    detail = f" [{last.detail}]" if last.detail else ""
    seen = f"node 0 was not reached at {target}"
    if last.kind != "foreign":
        seen += f" within {wait_s:g} s"
    interface, own = way_to(last.address) if last.address else ("", "")
    way = f", by {interface} from {own}" if interface else f"; interfaces: {listed()}"
    if last.address and is_loopback(last.address) and last.kind == "refused":
        advice = (
            f"{host} is this machine itself for this machine: if node 0 is another one, give its numeric address or"
            f" correct /etc/hosts; else {advice}"
        )
    return RunError(
        explain(f"{seen}: {meaning}{detail}", where=f"node {node} ({socket.gethostname()}){way}", next_step=advice)
    )


def not_come(
    missing: Collection[int], num_nodes: int, wait_s: float, here: str, there: Collection[str], host_here: str = ""
) -> RunError:
    """Some nodes have not come.

    Args:
        here: what node 0 listens on. there: the nodes that have come. host_here: what `--master` leads to on node 0.
    """
    who = ", ".join(str(node) for node in missing)
    come = f"; there are {', '.join(there)}" if there else ""
    return RunError(
        explain(
            f"{'node' if len(missing) == 1 else 'nodes'} {who} of {num_nodes} did not come within {wait_s:g} s{come}",
            "the same command with its own `--node-rank` is started on every machine, within that time",
            here + host_here,
            f"look at what the launcher of node {who} says; where none was started, start one. If it cannot reach"
            " node 0, a firewall may be between (docs/two-machines.md), or `--master` leads to another machine",
        )
    )


def ports_closed(node: int, address: str, port: int, error: str) -> RunError:
    """Node 0 is reached on the one port and not on another."""
    first = error.strip().split("\n")[0]
    return RunError(
        explain(
            f"node 0 is reached, but not its port {port}, which its ranks share with all others: {first}",
            "the machines reach each other on all TCP ports: the ranks take free ones",
            f"node {node} ({socket.gethostname()}) to {address}:{port}",
            "open all ports between the machines, see docs/two-machines.md",
        )
    )


def port_taken(port: int, error: OSError) -> UserError:
    """Node 0 cannot listen."""
    if error.errno == errno.EADDRINUSE:
        seen, advice = f"port {port} is in use, by {holder(port)}", "end it if it is a left-over"
    else:
        seen, advice = f"port {port} cannot be listened on: {error.strerror}", "ports below 1024 need privileges"
    return UserError(
        explain(
            seen,
            "node 0 listens on the port of `--master HOST:PORT`",
            f"node 0 ({socket.gethostname()})",
            f"{advice}, or give another port on all nodes",
        )
    )


def holder(port: int) -> str:
    """Who listens on a port of this machine, as far as this user may see it."""
    try:
        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN and one.pid:
                process = psutil.Process(one.pid)
                return f"pid {one.pid} of {process.username()}: {' '.join(process.cmdline())[:120] or process.name()}"
    except psutil.Error:
        pass
    return "a process that this user may not see"


def twice(node: int, one: str, two: str) -> UserError:
    """Two launchers say that they are the same node."""
    return UserError(
        explain(
            f"`--node-rank {node}` was given twice",
            "every machine has its own `--node-rank`, from 0 to `--nnodes` - 1",
            f"{one} and {two}",
            "correct it on one of the two",
        )
    )


def other_count(node: str, num_nodes: int, wanted: int) -> UserError:
    """A node was started for another number of nodes."""
    return UserError(
        explain(
            f"{node} was started with `--nnodes {num_nodes}`, node 0 with `--nnodes {wanted}`",
            "`--nnodes` is the same on all nodes",
            next_step="correct it on one of them",
        )
    )


def other_version(address: str) -> UserError:
    """A node speaks another version of this language."""
    return UserError(
        explain(
            f"the launcher at {address} is another version of Lockstep than that of node 0",
            "one version on all nodes",
            next_step="install the same version on every machine",
        )
    )


def two_ways(loopback: str, other: str) -> UserError:
    """One node reached node 0 over loopback, another over the network: gloo could not connect the two."""
    return UserError(
        explain(
            f"{loopback} reached node 0 by the loopback interface, {other} by the network",
            "all nodes reach each other by addresses of one network",
            next_step="give `--master` the numeric address of node 0 on that network, on every node",
        )
    )
