import math
import socket
import time

import pytest

from lockstep.core.errors import UserError
from lockstep.launch.nodes.hub import listen
from tests.launch.nodes.conftest import StartPeer
from tests.launch.nodes.two_hosts import TwoHosts


def test_a_port_in_use_is_named_with_its_holder(port: int) -> None:
    with listen(port), pytest.raises(UserError) as raised:
        listen(port)
    assert f"port {port} is in use, by pid" in str(raised.value) and "pytest" in str(raised.value)


def test_ipv4_and_ipv6_reach_it(port: int) -> None:
    with listen(port):
        for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            socket.create_connection((host, port), 2).close()


def test_a_rank_that_is_given_twice_ends_all_three(peer: StartPeer, port: int) -> None:
    zero, one = peer(0, port=port, num_nodes=3), peer(1, port=port, num_nodes=3)
    time.sleep(0.5)
    two = peer(1, port=port, num_nodes=3)
    for each in (zero, one, two):
        said = each.error()
        assert said.startswith("UserError: `--node-rank 1` was given twice")
        assert f"pid {one.pid}" in said and f"pid {two.pid}" in said


def test_another_number_of_nodes_ends_both(peer: StartPeer, port: int) -> None:
    for each in (peer(0, port=port), peer(1, port=port, num_nodes=4)):
        assert "was started with `--nnodes 4`, node 0 with `--nnodes 2`" in each.error()


def test_a_node_that_is_started_again_while_the_others_wait(peer: StartPeer, port: int) -> None:
    zero, one = peer(0, port=port, num_nodes=3), peer(1, port=port, num_nodes=3)
    time.sleep(0.7)
    one.process.kill()
    time.sleep(0.3)
    again, two = peer(1, port=port, num_nodes=3), peer(2, port=port, num_nodes=3)
    for each in (zero, again, two):
        each.met()


def test_who_comes_after_the_start_is_refused_and_disturbs_nobody(peer: StartPeer, port: int) -> None:
    zero, one = peer(0, port=port), peer(1, port=port)
    assert zero.met() and one.met()
    assert "was given twice" in peer(1, port=port).error()
    one.ask("tell", "still here")
    zero.until(lambda it: it.heard(1)[1] == "still here", 5)


def test_another_version_is_said_on_both_sides(peer: StartPeer, port: int) -> None:
    zero = peer(0, port=port)
    with connected(port) as client:
        client.sendall(b'{"lockstep": "lockstep-nodes-0"}\n')
        assert b"another version of Lockstep" in client.recv(10_000)
    assert "the launcher at 127.0.0.1 is another version of Lockstep" in zero.error()


@pytest.mark.slow
def test_a_launcher_that_has_outlived_its_node_0_disturbs_nobody(peer: StartPeer, port: int) -> None:
    zero, one = peer(0, port=port), peer(1, port=port)
    assert zero.met() and one.met()
    zero.process.kill()
    zero.process.join()
    anew = peer(0, port=port)
    time.sleep(1.5)
    other = peer(1, port=port)
    assert anew.met() and other.met()
    one.until(lambda it: it.heard(0)[0] == math.inf, 5)


def connected(port: int) -> socket.socket:
    """A connection to a node that may not listen yet."""
    for _ in range(50):
        try:
            return socket.create_connection(("127.0.0.1", port), 2)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError("nobody listens")


def test_strangers_disturb_nobody(peer: StartPeer, port: int) -> None:
    zero = peer(0, port=port)
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"lockstep": "nodes-0"}\n', b"", b"\x00" * 100):
        with connected(port) as stranger:
            stranger.sendall(words)
    one = peer(1, port=port)
    assert zero.met() and one.met()


def test_loopback_and_network_do_not_mix(peer: StartPeer, hosts: TwoHosts) -> None:
    near = [peer(node, "127.0.0.1", num_nodes=3, before=hosts.entering(0)) for node in (0, 1)]
    far = peer(2, hosts.addresses[0], num_nodes=3, before=hosts.entering(1))
    for each in (*near, far):
        assert "reached node 0 by the loopback interface" in each.error()
