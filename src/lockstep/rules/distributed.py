"""A script that runs on N ranks joins them.

What must hold
    A training that is started on several ranks initialises a process group.

Why
    `torchrun` starts N copies of a script and sets variables that say which is which. It does not make them work
    together. A script for one process, started so, is trained N times side by side.

How it shows
    Nothing stops: exit code 0, N times the same log lines, files written N times, and no speed gained.

Fix
    `torch.distributed.init_process_group`, a sampler that gives each rank its share, and `DistributedDataParallel`
    around the model.

Example
    twins/distributed: a script for one process.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.gradients import has_group
from lockstep.rules.evidence.telling import witness
from lockstep.trace.events import Step
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS100"
LAW = Law.SAME
NEED = 2
AFTER: tuple[str, ...] = ()


def dynamic(trace: Trace) -> Iterable[Finding]:
    """Ranks that make steps without ever having been joined."""
    training = [rank for rank in trace.ranks if next(rank.of(Step), None) is not None]
    if len(training) < 2 or has_group(trace):
        return
    counts = " and ".join(f"{sum(1 for _ in rank.of(Step))} steps on rank {rank.rank}" for rank in training[:2])
    yield Finding(
        CODE,
        Severity.ERROR,
        f"{trace.num_ranks} ranks ran and no process group was ever initialised: {len(training)} trainings ran side by "
        f"side ({counts}).",
        "ranks that train together join one process group",
        "call torch.distributed.init_process_group, shard the loader and wrap the model; or run it as one process",
        tuple(_alone(rank) for rank in training[:2]),
    )


def _alone(rank: RankTrace) -> Witness:
    first = next(rank.of(Step))
    return witness("trains by itself", rank.rank, first, first.number)
