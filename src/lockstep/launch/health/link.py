"""What joins the ranks, how fast it is by its own account, and whether the measured all-reduce fits that."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.launch.health.check import Check
from lockstep.launch.health.interfaces import Interface
from lockstep.launch.health.smi import Gpu
from lockstep.launch.health.sweep import Row
from lockstep.launch.nodes.interfaces import way_to

_INFINIBAND = Path("/sys/class/infiniband")
# Bytes per second of one PCIe lane in one direction, by generation.
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_GLOO_MOST = 25e9 / 8  # gloo's one TCP stream does not fill a faster network


@dataclass(frozen=True)
class Link:
    """bytes_per_s: in one direction, 0 where nobody says. fair: the part of it that an all-reduce should reach."""

    name: str
    bytes_per_s: float
    fair: float = 0.5


def of_network(found: Sequence[Interface], environ: Mapping[str, str], nccl: bool) -> Link:
    """The interface that leads to the other nodes."""
    named = environ.get("NCCL_SOCKET_IFNAME" if nccl else "GLOO_SOCKET_IFNAME", "")
    if nccl and (rate := _infiniband()) and environ.get("NCCL_IB_DISABLE") != "1":
        return Link("InfiniBand", rate, 0.3)
    chosen = [one for one in found if one.name in named.lstrip("=").split(",")] or _towards(found, environ)
    if not chosen:
        return Link("network", 0.0)
    speed = chosen[0].mbit_per_s * 1e6 / 8 if chosen[0].real else 0.0
    return Link(f"network through {chosen[0].name}", speed)


def _towards(found: Sequence[Interface], environ: Mapping[str, str]) -> list[Interface]:
    name, _ = way_to(environ.get("MASTER_ADDR", ""))
    return [one for one in found if one.name == name]


def _infiniband(root: Path = _INFINIBAND) -> float:
    """Bytes per second of the slowest active port; 0 without one."""
    rates = []
    for port in root.glob("*/ports/*"):
        try:
            active = "ACTIVE" in (port / "state").read_text()
            rate = re.match(r"\d+(\.\d+)?", (port / "rate").read_text())
        except OSError:
            continue
        if active and rate:
            rates.append(float(rate[0]) * 1e9 / 8)
    return min(rates, default=0.0)


def of_gpus(gpus: Sequence[Gpu], links: Mapping[tuple[int, int], str], nvlink: Mapping[int, float]) -> Link:
    """NVLink where every pair has it, else PCIe as the slowest slot has it."""
    if links and all(kind.startswith("NV") for kind in links.values()) and nvlink:
        return Link("NVLink", min(nvlink.values()), 0.3)
    slots = [_LANE.get(gpu.pcie_gen, 0.0) * gpu.pcie_lanes for gpu in gpus]
    if len(gpus) > 1 and slots and all(slots):
        worst = min(gpus, key=lambda gpu: _LANE.get(gpu.pcie_gen, 0.0) * gpu.pcie_lanes)
        return Link(f"PCIe {worst.pcie_gen} x{worst.pcie_lanes}", min(slots), 0.3)
    return Link("links of unknown speed", 0.0)


def judge(rows: Sequence[Row], num_ranks: int, backend: str, links: Sequence[Link]) -> list[Check]:
    """The verdict on an all-reduce. links: of every node; the slowest known one counts."""
    group = "all-reduce"
    if wrong := [row.num_bytes for row in rows if not row.right]:
        seen = f"wrong sums for {len(wrong)} of {len(rows)} sizes"
        advice = "the link or a GPU damages data: with GPUs try NCCL_P2P_DISABLE=1, and the driver's IOMMU/ACS settings"
        return [Check(group, "sums", "fail", seen, advice)]
    best = max(row.busbw(num_ranks) for row in rows)
    latency = min(row.seconds for row in rows)
    seen = f"busbw {speed(best)}, latency {latency * 1e3:.2f} ms; {num_ranks} ranks, {backend}"
    known = [link for link in links if link.bytes_per_s] if all(link.bytes_per_s for link in links) else []
    names = ", ".join(dict.fromkeys(link.name for link in links))
    if not known:
        return [Check(group, "speed", "ok", f"{seen}, {names} (its own speed is not known)")]
    slowest = min(known, key=lambda link: link.bytes_per_s)
    seen += f"; {slowest.name} is {speed(slowest.bytes_per_s)} by its own account"
    most = min(slowest.bytes_per_s, _GLOO_MOST) if backend == "gloo" else slowest.bytes_per_s
    if best < most * slowest.fair:
        seen += f", {best / slowest.bytes_per_s:.0%} of it used"
        return [Check(group, "speed", "warn", seen, _advice(slowest, backend))]
    return [Check(group, "speed", "ok", seen)]


def _advice(link: Link, backend: str) -> str:
    if link.name.startswith("network"):
        return "look for other traffic, a wrong interface (GLOO_SOCKET_IFNAME), an MTU that differs, half duplex"
    if link.name == "InfiniBand":
        return "NCCL_DEBUG=INFO says whether `NET/IB` or `NET/Socket` is used"
    return "NCCL_DEBUG=INFO says whether `P2P` or `SHM` is used; see `nvidia-smi topo -m` and nvidia-smi nvlink -e"


def speed(bytes_per_s: float) -> str:
    """`12.3 GB/s`, `640 MB/s`, `80 kB/s`."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:.3g} {unit}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"
