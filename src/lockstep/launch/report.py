"""How the ranks of one machine ended, as text for the other machines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lockstep.core.outcome import Exit
from lockstep.launch.record import Failure
from lockstep.launch.verdict import RankEnd


@dataclass(frozen=True)
class Report:
    """The end of one machine's ranks.

    alarm: what the launcher saw from outside, None for nothing. activities: what each rank did before, {rank: words}.
    ended_by: name of the signal that ended the launcher's run, or "". wrong: findings that make the run a failed one.
    """

    failures: tuple[Failure, ...] = ()
    ends: tuple[RankEnd, ...] = ()
    alarm: Failure | None = None
    activities: Mapping[int, str] = field(default_factory=dict)
    ended_by: str = ""
    wrong: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Whether every rank of this machine has done its work, or has saved and ended as it was asked to."""
        ended_well = all(end.done or end.code == Exit.PREEMPTED for end in self.ends)
        return not self.alarm and not self.ended_by and ended_well


def to_text(report: Report) -> str:
    """One line of JSON."""
    return json.dumps(asdict(report))


def from_text(text: str) -> Report:
    """Back again."""
    values = json.loads(text)
    return Report(
        failures=tuple(Failure(**one) for one in values["failures"]),
        ends=tuple(RankEnd(**one) for one in values["ends"]),
        alarm=Failure(**values["alarm"]) if values["alarm"] else None,
        activities={int(rank): text for rank, text in values["activities"].items()},
        ended_by=values["ended_by"],
        wrong=tuple(values["wrong"]),
    )


def on_clock(report: Report, ahead_s: float) -> Report:
    """The same report with the times of another clock, which this machine's is ahead of by so many seconds."""
    shift_ns = round(ahead_s * 1e9)
    return replace(
        report,
        failures=tuple(replace(one, time_ns=one.time_ns - shift_ns) for one in report.failures),
        ends=tuple(replace(one, time_ns=one.time_ns - shift_ns if one.time_ns else 0) for one in report.ends),
    )


def merged(reports: Sequence[Report]) -> Report:
    """Of all machines, the ranks in order; the first alarm counts, and of a rank what its own machine saw last."""
    seen = {rank: text for report in reports for rank, text in report.activities.items()}
    for report in reports:
        own = {end.rank for end in report.ends}
        seen |= {rank: text for rank, text in report.activities.items() if rank in own}
    return Report(
        failures=tuple(sorted((one for report in reports for one in report.failures), key=lambda one: one.rank)),
        ends=tuple(sorted((one for report in reports for one in report.ends), key=lambda one: one.rank)),
        alarm=next((report.alarm for report in reports if report.alarm), None),
        activities=seen,
        ended_by=next((report.ended_by for report in reports if report.ended_by), ""),
        wrong=tuple(dict.fromkeys(text for report in reports for text in report.wrong)),
    )
