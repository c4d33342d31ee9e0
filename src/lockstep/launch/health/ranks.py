"""What the ranks of `lockstep doctor` do: gather what every node has seen, compare clocks, measure an all-reduce."""

import os
import pickle
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from lockstep.core.errors import RunError, explain
from lockstep.launch.health import interfaces, pairs, smi, sweep
from lockstep.launch.health.check import Check
from lockstep.launch.health.link import Link, of_gpus, of_network
from lockstep.launch.health.pairs import Pair
from lockstep.runtime.world import World

TIMEOUT_S = 60.0
_PINGS = 8


@dataclass(frozen=True)
class NodeReport:
    """What one node has seen of itself. facts: what must be equal on all. link: what joins the ranks."""

    node: int
    host: str
    facts: dict[str, str]
    checks: tuple[Check, ...]
    link: Link


@dataclass(frozen=True)
class Clock:
    """How far a node's clock is ahead of node 0's. Seconds; it may be wrong by uncertain_s."""

    node: int
    ahead_s: float
    uncertain_s: float


@dataclass(frozen=True)
class Measured:
    """What the ranks found together. compute_s, node_of_rank: by rank. pairs: empty on one machine."""

    backend: str
    num_ranks: int
    nodes: tuple[NodeReport, ...]
    clocks: tuple[Clock, ...]
    rows: tuple[sweep.Row, ...]
    compute_s: tuple[float, ...]
    node_of_rank: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()


def rank_main(result: Path, facts: dict[str, str], checks: tuple[Check, ...]) -> None:
    """Run as one rank; rank 0 leaves what was found in `result`.

    Args:
        facts, checks: of this node, as its launcher has found them.
    """
    with World.enter(threads=1, timeout_s=TIMEOUT_S) as world:
        place = world.place
        link = _link(world)
        own = NodeReport(place.node, socket.gethostname(), facts, checks, link) if place.rank_of_node == 0 else None
        nodes = [report for report in world.gather(own) if report is not None]
        where = world.gather(place.node)
        clocks = _clocks(world, where)
        rows = sweep.measure(world)
        speeds = world.gather(sweep.compute_s(world))
        guess = max(row.busbw(world.num_ranks) for row in rows)
        links = pairs.measure(world, where, guess) if len(nodes) > 1 else []
        if world.is_main:
            measured = Measured(
                backend="nccl" if world.device.type == "cuda" else "gloo",
                num_ranks=world.num_ranks,
                nodes=tuple(nodes),
                clocks=tuple(clocks),
                rows=tuple(rows),
                compute_s=tuple(speeds),
                node_of_rank=tuple(where),
                pairs=tuple(links),
            )
            _leave(result, measured)
        world.barrier()


def read(result: Path) -> Measured | None:
    """What rank 0 has left; None where it has not come so far."""
    if not result.exists():
        return None
    found = pickle.loads(result.read_bytes())
    assert isinstance(found, Measured)
    return found


def _leave(result: Path, measured: Measured) -> None:
    try:
        result.write_bytes(pickle.dumps(measured))
    except OSError as error:
        seen = f"{result} cannot be written: {error.strerror}"
        raise RunError(explain(seen, "space in the temporary folder", next_step="TMPDIR names another")) from None


def _link(world: World) -> Link:
    if world.place.num_nodes > 1:
        return of_network(interfaces.interfaces(), dict(os.environ), world.device.type == "cuda")
    if world.device.type == "cuda":
        return of_gpus(smi.gpus() or [], smi.links(), smi.nvlink_bytes_per_s())
    return Link("memory of one machine", 0.0)


def _clocks(world: World, node_of_rank: list[int]) -> list[Clock]:
    """Ping the first rank of each other node: its clock is read in the middle of the quickest exchange."""
    found = []
    for node in sorted(set(node_of_rank) - {node_of_rank[0]}):
        first = node_of_rank.index(node)
        if world.is_main:
            found.append(_ask(node, first))
        elif world.rank == first:
            _answer()
    return found


def _ask(node: int, rank: int) -> Clock:
    best = Clock(node, 0.0, float("inf"))
    box = torch.zeros(1, dtype=torch.float64)
    for _ in range(_PINGS):
        sent = time.time()
        dist.send(box, rank)
        dist.recv(box, rank)
        back = time.time()
        if (back - sent) / 2 < best.uncertain_s:
            best = Clock(node, float(box) - (sent + back) / 2, (back - sent) / 2)
    return best


def _answer() -> None:
    box = torch.zeros(1, dtype=torch.float64)
    for _ in range(_PINGS):
        dist.recv(box, 0)
        box.fill_(time.time())
        dist.send(box, 0)
