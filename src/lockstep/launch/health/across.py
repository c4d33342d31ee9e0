"""What only all nodes together show: versions or clocks that differ, a rank that is slower than the others."""

from collections.abc import Iterator, Sequence

from lockstep.launch.health import link, pairs
from lockstep.launch.health.check import Check, Status
from lockstep.launch.health.ranks import Clock, Measured, NodeReport

GROUP = "all nodes"
_APART_S = 1.0
_SLOW = 1.5
# A run with two of these fails, or hangs, or computes something else on one node.
_MUST = {"lockstep", "torch", "NCCL", "CUDA of torch", "ROCm of torch"}


def checks(measured: Measured) -> Iterator[Check]:
    """Everything that was found together."""
    if len(measured.nodes) > 1:
        yield from versions(measured.nodes)
        yield from map(clock, measured.clocks)
        yield pairs.judge(measured.pairs)
    yield from link.judge(
        measured.rows, measured.num_ranks, measured.backend, [report.link for report in measured.nodes]
    )
    yield spread(measured.compute_s, measured.node_of_rank)


def versions(nodes: Sequence[NodeReport]) -> Iterator[Check]:
    """One line for each fact that differs, or one that says that none does."""
    names = list(dict.fromkeys(name for report in nodes for name in report.facts))
    same = True
    for name in names:
        values: dict[str, list[int]] = {}
        for report in nodes:
            values.setdefault(report.facts.get(name, "none"), []).append(report.node)
        if len(values) > 1:
            same = False
            seen = "; ".join(f"{value} on {_nodes(where)}" for value, where in values.items())
            yield Check(GROUP, name, _weight(name, values), seen, "install the same on every node")
    if same:
        yield Check(GROUP, "versions", "ok", f"equal on {len(nodes)} nodes: {', '.join(names)}")


def _weight(name: str, values: dict[str, list[int]]) -> Status:
    if name == "Python":  # what one pickles the other must be able to read
        return "warn" if len({value.rpartition(".")[0] for value in values}) == 1 else "fail"
    return "fail" if name in _MUST else "warn"


def clock(found: Clock) -> Check:
    """One node's clock against node 0's."""
    ahead = "ahead of" if found.ahead_s > 0 else "behind"
    seen = f"{abs(found.ahead_s):.3f} s {ahead} node 0 (to {found.uncertain_s:.3f} s)"
    if abs(found.ahead_s) - found.uncertain_s > _APART_S:
        advice = "set the clocks (chrony): logs and file times of the nodes are compared"
        return Check(GROUP, f"clock of node {found.node}", "warn", seen, advice)
    return Check(GROUP, f"clock of node {found.node}", "ok", seen)


def spread(compute_s: Sequence[float], node_of_rank: Sequence[int]) -> Check:
    """The same product of matrices on every rank at the same time: all wait for the slowest in every step."""
    fastest, slowest = min(compute_s), max(compute_s)
    late = [rank for rank, seconds in enumerate(compute_s) if seconds > _SLOW * fastest]
    seen = f"a product of matrices takes {fastest * 1e3:.2f} to {slowest * 1e3:.2f} ms"
    if not late:
        return Check("all-reduce", "ranks", "ok", f"{seen} on {len(compute_s)} ranks")
    several = len(set(node_of_rank)) > 1
    who = ", ".join(f"{rank} (node {node_of_rank[rank]})" if several else str(rank) for rank in late)
    seen += f"; slow: rank {who}"
    return Check("all-reduce", "ranks", "warn", seen, "another process beside it, heat, or a different machine")


def _nodes(nodes: Sequence[int]) -> str:
    return f"node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"
