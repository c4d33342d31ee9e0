"""How fast each node sends to the next: an all-reduce is as slow as the slowest link, and does not say which it is."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lockstep.launch.health.check import Check
from lockstep.launch.health.link import speed
from lockstep.runtime.world import World

_EACH_S = 0.05
_LEAST, _MOST = 2**16, 2**25
_REPEATS = 2
_SLOW = 0.5


@dataclass(frozen=True)
class Pair:
    """One direction between the first ranks of two nodes, by gloo."""

    sender: int
    receiver: int
    bytes_per_s: float


def ring(num_nodes: int) -> list[tuple[int, int]]:
    """Each node with the next, in both directions; each direction once."""
    both = [(node, (node + step) % num_nodes) for step in (1, -1) for node in range(num_nodes)]
    return [(one, other) for one, other in dict.fromkeys(both) if one != other]


def measure(world: World, node_of_rank: Sequence[int], guess: float) -> list[Pair]:
    """Measure one pair after another, while all others wait; the same on every rank.

    Args:
        guess: bytes per second, by which the size of a message is chosen.
    """
    firsts = [node_of_rank.index(node) for node in sorted(set(node_of_rank))]
    num_bytes = int(min(_MOST, max(_LEAST, guess * _EACH_S)))
    mine: list[Pair] = []
    for sender, receiver in ring(len(firsts)):
        if world.rank == firsts[sender]:
            mine.append(Pair(sender, receiver, _REPEATS * num_bytes / _send(firsts[receiver], num_bytes)))
        elif world.rank == firsts[receiver]:
            _receive(firsts[sender], num_bytes)
        world.barrier()
    return [pair for pairs in world.gather(mine) for pair in pairs]


def judge(pairs: Sequence[Pair]) -> Check:
    """A direction that is much slower than the others is named."""
    usual = statistics.median(pair.bytes_per_s for pair in pairs)
    fastest = max(pair.bytes_per_s for pair in pairs)
    # Two nodes have two directions, whose median is no yardstick.
    yardstick = usual if len(pairs) > 2 else fastest
    slow = [pair for pair in pairs if pair.bytes_per_s < _SLOW * yardstick]
    seen = f"a node sends to the next {speed(min(pair.bytes_per_s for pair in pairs))} to {speed(fastest)}"
    if not slow:
        return Check("all nodes", "links", "ok", seen)
    named = "; ".join(f"node {pair.sender} to node {pair.receiver} {speed(pair.bytes_per_s)}" for pair in slow)
    advice = "look at cable, port and switch of the node that is in all of these (ethtool: speed, duplex, errors)"
    return Check("all nodes", "links", "warn", f"{seen}; slow: {named}", advice)


def _send(rank: int, num_bytes: int) -> float:
    message, answer = torch.zeros(num_bytes, dtype=torch.uint8), torch.zeros(1)
    dist.send(answer, rank)  # both are here now
    dist.recv(answer, rank)
    began = time.perf_counter()
    for _ in range(_REPEATS):
        dist.send(message, rank)
    dist.recv(answer, rank)
    return time.perf_counter() - began


def _receive(rank: int, num_bytes: int) -> None:
    message, answer = torch.zeros(num_bytes, dtype=torch.uint8), torch.zeros(1)
    dist.recv(answer, rank)
    dist.send(answer, rank)
    for _ in range(_REPEATS):
        dist.recv(message, rank)
    dist.send(answer, rank)
