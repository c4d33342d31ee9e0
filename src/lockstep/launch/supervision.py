"""How a launch is looked after: with whom, by which limits, and what happens at its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.core.wish import Wish
from lockstep.launch.nodes import Nodes
from lockstep.launch.watchdog.limits import Limits


@dataclass(frozen=True)
class Supervision:
    """What a launch is given beside its work.

    nodes: the machines that take part. facts: what must be equal on all of them, {name: value}.
    limits: how long a rank may be silent; None: nobody watches, and ranks mark nothing.
    restarts: how often all ranks are started again after a failure.
    saves: ranks end by themselves, after saving, when they are asked to (SIGTERM, SIGUSR1); else the signal is handed
    to ranks that handle it, and ends the others.
    output: folder of a log file for each rank, None for none; all_ranks: show what every rank says, not only rank 0.
    """

    nodes: Nodes = field(default_factory=Nodes)
    facts: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None
    restarts: int = 0
    saves: bool = False
    output: Path | None = None
    all_ranks: bool = False


ALONE = Supervision()
"""One machine, unwatched, one attempt."""


def supervise(
    wish: Wish, nodes: Nodes, facts: Mapping[str, str], output: Path | None = None, saves: bool = False
) -> Supervision:
    """A watched launch as the user wishes it."""
    limits = Limits()
    if wish.stall_timeout_s is not None:
        deadline_s = wish.stall_timeout_s
        link_s = min(limits.link_s, deadline_s or limits.link_s)
        limits = replace(limits, deadline_s=deadline_s, from_start=True, link_s=link_s)
    return Supervision(nodes, facts, limits, wish.restarts, saves, output, wish.all_ranks)
