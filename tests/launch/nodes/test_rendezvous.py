import os
import signal
import time

import pytest

from tests.launch.nodes.conftest import StartPeer
from tests.launch.nodes.two_hosts import TwoHosts


def test_each_attempt_has_a_store_of_its_own_that_all_reach(peer: StartPeer, hosts: TwoHosts) -> None:
    zero, one = (
        peer(node, "", before=hosts.entering(node))
        if node == 0
        else peer(node, hosts.addresses[0], before=hosts.entering(node))
        for node in (0, 1)
    )
    assert zero.met() and one.met()
    for attempt in (0, 1):
        one._pipe.send(("store", (attempt,)))
        time.sleep(0.3)  # whoever is first waits
        expected = ["node 0 of 2", "node 1 of 2", hosts.addresses[0]]
        assert zero.ask("store", attempt) == one.answer() == expected


@pytest.mark.parametrize("killed", [0, 1])
def test_a_node_that_dies_before_the_start_is_not_waited_for(peer: StartPeer, port: int, killed: int) -> None:
    both = [peer(node, port=port) for node in (0, 1)]
    assert all(one.met() for one in both)
    both[1 - killed]._pipe.send(("store", (0,)))
    time.sleep(0.3)
    os.kill(both[killed].pid, signal.SIGKILL)
    answer = both[1 - killed].answer(6)
    assert f"node {killed} has left before the ranks were started" in answer["raised"]
