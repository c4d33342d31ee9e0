from tests.launch.nodes.conftest import StartPeer
from tests.launch.nodes.two_hosts import TwoHosts


def test_two_nodes_0_on_two_hosts_find_each_other(peer: StartPeer, hosts: TwoHosts) -> None:
    both = [peer(0, hosts.addresses[0], before=hosts.entering(host), num_nodes=3) for host in (0, 1)]
    for one in both:
        said = one.error()
        assert "`--node-rank 0` was given twice" in said and all(f"pid {each.pid}" in said for each in both)


def test_a_name_that_does_not_lead_here_is_no_fault_but_is_said(peer: StartPeer, hosts: TwoHosts) -> None:
    zero = peer(0, "gpu-a.invalid", before=hosts.entering(0), wait_s=1.5)
    assert "gpu-a.invalid does not resolve here" in zero.error()
    zero = peer(0, "gpu-a.invalid", before=hosts.entering(0))
    one = peer(1, hosts.addresses[0], before=hosts.entering(1))
    assert zero.met()["address"] == one.met()["address"] == hosts.addresses[0]
