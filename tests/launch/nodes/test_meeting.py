import math
import os
import random
import signal
import time

import pytest

from lockstep.core.errors import UserError
from lockstep.launch.nodes import Nodes
from lockstep.launch.nodes.meeting import meet
from tests.launch.nodes.conftest import StartPeer
from tests.launch.nodes.two_hosts import TwoHosts

ORDERS = pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["node 0 first", "node 1 first"])


def test_one_node_meets_nobody() -> None:
    with meet(Nodes(), 4, {}) as meeting:
        assert (meeting.node, meeting.num_nodes, meeting.interface, meeting.ranks_per_node) == (0, 1, "lo", (4,))
        meeting.tell("x")
        meeting.finish(0, "done")
        assert meeting.heard() == {} == meeting.finished(0, 5.0)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (Nodes(2, 2, "host"), "--node-rank 2"),
        (Nodes(2, -1, "host"), "--node-rank -1"),
        (Nodes(0, 0), "--nnodes"),
        (Nodes(2, 1), "--master"),
        (Nodes(2, 1, "host", 70000), "70000"),
    ],
)
def test_what_cannot_be_is_said_before_anybody_waits(nodes: Nodes, words: str) -> None:
    with pytest.raises(UserError, match=words):
        meet(nodes, 1, {})


@ORDERS
def test_two_hosts_meet_in_either_order(peer: StartPeer, hosts: TwoHosts, order: tuple[int, int]) -> None:
    started = {node: peer(node, hosts.addresses[0], before=hosts.entering(node), ranks=node + 2) for node in order}
    for node, interface in enumerate(hosts.interfaces):
        met = started[node].met()
        assert (met["node"], met["num_nodes"], met["ranks_per_node"]) == (node, 2, (2, 3))
        assert (met["address"], met["interface"]) == (hosts.addresses[0], interface)
        assert abs(met["clock_ahead_s"]) < 1


@ORDERS
def test_two_launchers_on_one_machine(peer: StartPeer, port: int, order: tuple[int, int]) -> None:
    for met in [one.met() for one in [peer(node, "localhost", port) for node in order]]:
        assert met["interface"] == "lo" and met["address"] in ("127.0.0.1", "::1")


def test_a_name_that_leads_to_the_debian_loopback_address_is_right_on_one_machine(peer: StartPeer, port: int) -> None:
    for met in [one.met() for one in [peer(node, "127.0.1.1", port) for node in (0, 1)]]:
        assert (met["address"], met["interface"]) == ("127.0.1.1", "lo")


@ORDERS
def test_a_late_node_is_waited_for(peer: StartPeer, hosts: TwoHosts, order: tuple[int, int]) -> None:
    early = peer(order[0], hosts.addresses[0], before=hosts.entering(order[0]))
    time.sleep(2)
    late = peer(order[1], hosts.addresses[0], before=hosts.entering(order[1]))
    early.met()
    late.met()


def test_nodes_that_are_there_say_who_is_not(peer: StartPeer, hosts: TwoHosts) -> None:
    there = [
        peer(node, hosts.addresses[0], 29500, num_nodes=3, wait_s=wait_s, before=hosts.entering(node))
        for node, wait_s in ((1, 60.0), (0, 4.0))
    ]
    for one in there:
        said = one.error()
        assert "RunError: node 2 of 3 did not come within 4 s; there are node 1 (" in said
        assert f"{hosts.addresses[1]}, pid {there[0].pid})" in said
        assert f"port 29500 of all its interfaces: {hosts.interfaces[0]} {hosts.addresses[0]}" in said
        assert "firewall" in said


def test_both_sides_end_when_the_cable_is_out_before_they_meet(peer: StartPeer, hosts: TwoHosts) -> None:
    hosts.cut()
    zero, one = (peer(node, hosts.addresses[0], wait_s=2.0, before=hosts.entering(node)) for node in (0, 1))
    assert "node 1 of 2 did not come" in zero.error()
    assert "no route" in one.error()


def test_what_differs_is_named_with_both_values_on_every_node(peer: StartPeer, port: int) -> None:
    facts = ({"torch": "2.13.0", "python": "3.11", "GPU": "none"}, {"torch": "2.9.1", "python": "3.11", "disk": "x"})
    for one in [peer(node, port=port, facts=facts[node]) for node in (0, 1)]:
        said = one.error()
        assert said.startswith("UserError: torch is '2.9.1' on node 1 and '2.13.0' on node 0; ")
        assert "GPU is 'unknown' on node 1" in said and "disk is 'x' on node 1" in said and "python" not in said


def test_a_signal_ends_the_wait_at_once(peer: StartPeer, port: int) -> None:
    for one in (peer(0, port=port), peer(1, "192.0.2.1")):
        time.sleep(1)
        one.stop()
        started = time.monotonic()
        assert one.error().startswith("StoppedError")
        assert time.monotonic() - started < 1


def test_progress_and_reports_travel_both_ways(peer: StartPeer, port: int) -> None:
    zero, one = (peer(node, port=port) for node in (0, 1))
    assert zero.met() and one.met()
    for this, other, node in ((zero, one, 1), (one, zero, 0)):
        other.ask("tell", f"step 5 of node {node}")
        this.until(lambda it, node=node: it.heard(node)[1] == f"step 5 of node {node}", 3)  # type: ignore[misc]
        assert 0 <= this.heard(node)[0] < 3
        assert this.ask("finished", 0, 0.0) == {}
        other.ask("finish", 0, f"report of node {node}")
        assert this.ask("finished", 0, 10.0) == {node: f"report of node {node}"}
    one.ask("close")
    zero.until(lambda it: it.ask("heard") == {}, 3)
    assert zero.ask("finished", 0, 0.0) == {1: "report of node 1"}, "what was said stays"
    assert zero.ask("finished", 1, 10.0) == {}, "nobody is left to wait for"


@pytest.mark.parametrize("killed", [0, 1])
def test_a_launcher_that_dies_is_gone_for_the_other_soon(peer: StartPeer, port: int, killed: int) -> None:
    both = [peer(node, port=port) for node in (0, 1)]
    assert all(one.met() for one in both)
    os.kill(both[killed].pid, signal.SIGKILL)
    took_s = both[1 - killed].until(lambda it: it.heard(killed)[0] == math.inf)
    assert took_s < 5
    assert both[1 - killed].ask("finished", 0, 30.0, timeout_s=3) == {}


@pytest.mark.slow
def test_a_launcher_that_is_stopped_grows_old_and_comes_back(peer: StartPeer, port: int) -> None:
    both = [peer(node, port=port) for node in (0, 1)]
    assert all(one.met() for one in both)
    os.kill(both[1].pid, signal.SIGSTOP)
    both[0].until(lambda it: 3 < it.heard(1)[0] < math.inf, 6)
    os.kill(both[1].pid, signal.SIGCONT)
    both[0].until(lambda it: it.heard(1)[0] < 1.5, 5)


@pytest.mark.slow
@pytest.mark.parametrize("cut_s", [2, 8, 17])
def test_a_link_that_is_cut_and_mended(peer: StartPeer, hosts: TwoHosts, cut_s: int) -> None:
    both = [peer(node, hosts.addresses[0], before=hosts.entering(node)) for node in (0, 1)]
    assert all(one.met() for one in both)
    hosts.cut()
    cut_at = time.monotonic()
    both[0].ask("finish", 0, "said behind the cut")
    time.sleep(cut_s)
    for node, one in enumerate(both):
        age_s, _ = one.heard(1 - node)
        assert cut_s - 1.5 < age_s < time.monotonic() - cut_at + 1.5
    hosts.mend()
    for node, one in enumerate(both):
        one.until(lambda it, node=node: 0 <= it.heard(1 - node)[0] < 1.5, 10)  # type: ignore[misc]
    assert both[1].ask("finished", 0, 5.0) == {0: "said behind the cut"}
    both[1].ask("finish", 0, "said after it")
    assert both[0].ask("finished", 0, 5.0) == {1: "said after it"}


@pytest.mark.slow
def test_a_slow_and_lossy_link(peer: StartPeer, slow_hosts: TwoHosts) -> None:
    both = [peer(node, slow_hosts.addresses[0], before=slow_hosts.entering(node)) for node in (0, 1)]
    assert all(one.met() for one in both)
    assert both[1].ask("rtt_s") > 0.1
    report = "x" * 1_000_000
    both[1].ask("finish", 0, report)
    assert both[0].ask("finished", 0, 15.0) == {1: report}
    ages_s = []
    for _ in range(10):
        time.sleep(0.5)
        ages_s.append(both[0].heard(1)[0])
    assert max(ages_s) < 4


def test_interfaces_that_the_user_names_wrongly(peer: StartPeer, hosts: TwoHosts) -> None:
    one = peer(1, hosts.addresses[0], before=hosts.entering(1), env={"GLOO_SOCKET_IFNAME": "eth7"})
    assert "GLOO_SOCKET_IFNAME is 'eth7'" in one.error()
    zero = peer(0, hosts.addresses[0], before=hosts.entering(0), env={"NCCL_SOCKET_IFNAME": "lo"})
    one = peer(1, hosts.addresses[0], before=hosts.entering(1))
    assert "not the loopback interface" in zero.error()
    one.met()
    one.until(lambda it: it.heard(0)[0] == math.inf)


@pytest.mark.slow
def test_eight_nodes_in_any_order(peer: StartPeer, port: int) -> None:
    order = random.Random(0).sample(range(8), 8)
    started = {node: peer(node, port=port, num_nodes=8, ranks=node + 1) for node in order}
    for one in started.values():
        assert one.met()["ranks_per_node"] == tuple(range(1, 9))
    for node, one in started.items():
        one.ask("finish", 0, f"report {node}")
    expected = {node: f"report {node}" for node in range(8)}
    for node, one in started.items():
        assert one.ask("finished", 0, 10.0) == {other: text for other, text in expected.items() if other != node}
    os.kill(started[3].pid, signal.SIGKILL)
    for one in (started[0], started[7]):
        one.until(lambda it: it.heard(3)[0] == math.inf, 5)
        assert all(age_s < 4 for other, (age_s, _) in one.ask("heard").items() if other != 3)
