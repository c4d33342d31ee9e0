import pytest

from lockstep.launch.health import link
from lockstep.launch.health.interfaces import Interface
from lockstep.launch.health.link import Link
from lockstep.launch.health.smi import Gpu
from lockstep.launch.health.sweep import Row

LO = Interface("lo", ("127.0.0.1",), True, 65536, 0, False)
ETH = Interface("eth0", ("10.0.0.5",), True, 1500, 1000, True)
VETH = Interface("veth0", ("10.0.0.6",), True, 1500, 10_000, False)
GPUS = [Gpu(index, "A10", 1, 1, "1", "Default", pcie_gen=4, pcie_lanes=lanes) for index, lanes in enumerate((16, 8))]


def test_the_interface_that_is_named() -> None:
    assert link.of_network([LO, ETH], {"GLOO_SOCKET_IFNAME": "eth0"}, nccl=False) == Link("network through eth0", 125e6)
    assert link.of_network([LO, ETH], {"NCCL_SOCKET_IFNAME": "=eth0"}, nccl=True).bytes_per_s == 125e6


def test_the_speed_of_a_software_pair_means_nothing() -> None:
    assert link.of_network([LO, VETH], {"GLOO_SOCKET_IFNAME": "veth0"}, nccl=False).bytes_per_s == 0


def test_the_interface_towards_the_master() -> None:
    assert link.of_network([LO, ETH], {"MASTER_ADDR": "127.0.0.1"}, nccl=False).name == "network through lo"
    assert link.of_network([], {}, nccl=False).bytes_per_s == 0


def test_nvlink_before_pcie() -> None:
    every = {(0, 1): "NV12", (1, 0): "NV12"}
    assert link.of_gpus(GPUS, every, {0: 3e11, 1: 2e11}) == Link("NVLink", 2e11, 0.3)
    assert link.of_gpus(GPUS, {(0, 1): "PHB"}, {}).name == "PCIe 4 x8"
    assert link.of_gpus([], {}, {}).bytes_per_s == 0


def row(num_bytes: int, seconds: float, right: bool = True) -> Row:
    return Row(num_bytes, seconds, right)


@pytest.mark.parametrize(("seconds", "status"), [(0.1, "ok"), (0.19, "ok"), (0.3, "warn")])
def test_against_the_link(seconds: float, status: str) -> None:
    # 10 MB on two ranks: busbw is 10 MB / seconds, of 100 MB/s.
    (check,) = link.judge([row(4096, 0.001), row(10_000_000, seconds)], 2, "gloo", [Link("network", 1e8)] * 2)
    assert check.status == status
    assert "latency 1.00 ms" in check.seen
    assert bool(check.advice) == (status == "warn")


def test_gloo_is_not_held_against_a_network_that_it_cannot_fill() -> None:
    rows, fast = [row(2_000_000_000, 1.0)], [Link("network", 12.5e9)]
    assert link.judge(rows, 2, "gloo", fast)[0].status == "ok"
    assert link.judge(rows, 2, "nccl", fast)[0].status == "warn"


def test_an_unknown_link_gives_no_verdict() -> None:
    (check,) = link.judge([row(4096, 1.0)], 2, "gloo", [Link("network", 1e9), Link("network through veth0", 0.0)])
    assert check.status == "ok"
    assert "not known" in check.seen


def test_wrong_sums_fail() -> None:
    (check,) = link.judge([row(4096, 1.0), row(8192, 1.0, right=False)], 2, "nccl", [Link("NVLink", 1e11)])
    assert (check.status, check.seen) == ("fail", "wrong sums for 1 of 2 sizes")


@pytest.mark.parametrize(("value", "text"), [(12.34e9, "12.3 GB/s"), (6.4e8, "640 MB/s"), (80e3, "80 kB/s")])
def test_speeds(value: float, text: str) -> None:
    assert link.speed(value) == text
