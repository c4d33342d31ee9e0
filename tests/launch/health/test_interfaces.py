import pytest

from lockstep.launch.health import interfaces
from lockstep.launch.health.check import Asked
from lockstep.launch.health.interfaces import Interface
from lockstep.launch.nodes import Nodes

LO = Interface("lo", ("127.0.0.1",), True, 65536, 0, False)
ETH = Interface("eth0", ("10.0.0.5", "fe80::1"), True, 1500, 10_000, True)
DOWN = Interface("eth1", ("10.1.0.5",), False, 1500, 0, True)
BARE = Interface("ib0", (), True, 2044, 0, True)
DOCKER = Interface("docker0", ("172.17.0.1",), True, 1500, 0, False)
ALL = [LO, ETH, DOWN, BARE, DOCKER]


@pytest.mark.parametrize(
    ("text", "status", "must"),
    [
        ("eth0", "ok", "10.0.0.5"),
        ("ens6", "fail", "this host has no ens6; it has lo, eth0"),
        ("eth0,ens6", "fail", "this host has no ens6"),
        ("^docker0", "fail", "gloo looks for an interface of that name"),
        ("=eth0", "fail", "gloo looks"),
        ("eth1", "fail", "DOWN"),
        ("ib0", "fail", "no address"),
        ("lo", "fail", "reaches this machine only"),
    ],
)
def test_gloo_takes_whole_names(text: str, status: str, must: str) -> None:
    check = interfaces.gloo(text, ALL, several=True)
    assert (check.status, check.name) == (status, "GLOO_SOCKET_IFNAME")
    assert must in check.seen
    assert bool(check.advice) == (status == "fail")


def test_loopback_is_right_on_one_machine() -> None:
    assert interfaces.gloo("lo", ALL, several=False).status == "ok"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("eth", "ok"),
        ("=eth0", "ok"),
        ("=eth", "fail"),
        ("ens", "fail"),
        ("^docker,lo", "ok"),
        ("^eth,docker,lo", "fail"),
        ("^=lo", "ok"),
        ("lo", "fail"),
        ("eth0,ens6", "ok"),
    ],
)
def test_nccl_takes_beginnings_and_signs(text: str, status: str) -> None:
    assert interfaces.nccl(text, ALL, several=True).status == status


def test_the_list() -> None:
    check = interfaces.listed(ALL, Asked())
    assert check.status == "ok"
    assert "eth0 10.0.0.5 fe80::1 (up, MTU 1500, 10000 Mbit/s)" in check.seen
    assert "ib0" not in check.seen
    assert interfaces.listed([ETH], Asked()).status == "fail"
    assert interfaces.listed([LO, DOWN], Asked(nodes=Nodes(2))).status == "fail"


def test_this_machine_and_its_variables() -> None:
    found = {one.name: one for one in interfaces.interfaces()}
    (loopback,) = [one for one in found.values() if one.loopback and one.addresses]
    assert loopback.up
    assert not loopback.real
    environ = {"GLOO_SOCKET_IFNAME": loopback.name, "NCCL_SOCKET_IFNAME": "no-such"}
    checks = {check.name: check for check in interfaces.checks(Asked(environ=environ))}
    assert checks["GLOO_SOCKET_IFNAME"].status == "ok"
    assert checks["NCCL_SOCKET_IFNAME"].status == "fail"


def test_the_way_to_node_0() -> None:
    assert interfaces.route("127.0.0.1").status == "ok"
    assert interfaces.route("no-such-host.invalid").status == "fail"
