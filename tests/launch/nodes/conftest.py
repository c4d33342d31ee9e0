"""Fixtures: two hosts that are there for all tests of this folder, and nodes that end with their test."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.launch.nodes import Nodes
from tests.launch.nodes.peers import Peer
from tests.launch.nodes.two_hosts import TwoHosts, two_hosts, why_not

StartPeer = Callable[..., Peer]


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    """Two hosts; skips where this machine cannot have them."""
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as made:
        yield made


@pytest.fixture
def slow_hosts() -> Iterator[TwoHosts]:
    """Two hosts with a bad line between them: 50 ms in each direction, 2 % loss, 50 Mbit/s."""
    if reason := why_not() or ("" if Path("/dev/net/tun").exists() else "there is no /dev/net/tun here"):
        pytest.skip(reason)
    with two_hosts(delay_s=0.05, loss=0.02) as made:
        made.limit(50)
        yield made


@pytest.fixture
def peer() -> Iterator[StartPeer]:
    """Start `peer(node, host=..., num_nodes=2, wait_s=20, before=None, ranks=1, facts=None, env=None)`."""
    started: list[Peer] = []

    def start(node: int, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Peer:
        nodes = Nodes(options.pop("num_nodes", 2), node, host, port, options.pop("wait_s", 20.0))
        started.append(Peer(nodes, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
