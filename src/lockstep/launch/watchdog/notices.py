"""What is worth a word while the run goes on: a wait for data, a rank that is always last, ranks that differ. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.core.words import ranks_text
from lockstep.launch.watchdog.sight import Sight
from lockstep.launch.watchdog.words import entry_text

_STEPS = 16
_LAG_S, _LAG_SHARE = 0.05, 0.25
_DATA_S, _DATA_SHARE = 0.05, 0.5


@dataclass(frozen=True)
class Notice:
    """A finding about a run that goes on. key: what it is about, so that it is told once. wrong: it is no matter of
    speed: the training is not what it claims to be."""

    key: str
    text: str
    wrong: bool = False


def notices(sights: Sequence[Sight]) -> Iterator[Notice]:
    """All that the sights give reason for."""
    yield from _differ(sights)
    yield from _out_of_step(sights)
    yield from _slow_data(sights)
    yield from _straggler(sights)


def _differ(sights: Sequence[Sight]) -> Iterator[Notice]:
    """Digests of the parameters at the same step."""
    told = {sight.rank: dict(sight.marks.digests) for sight in sights if sight.marks is not None}
    if len(told) < 2 or len(told) < len(sights):
        return
    shared = sorted(set.intersection(*(set(digests) for digests in told.values())))
    different = [step for step in shared if len({digests[step] for digests in told.values()}) > 1]
    if not different:
        return
    step, before = different[0], [one for one in shared if one < different[0]]
    values = [digests[step] for digests in told.values()]
    usual = max(values, key=values.count)
    odd = [rank for rank, digests in told.items() if digests[step] != usual]
    since = f"; after step {before[-1]} they were the same" if before else ""
    yield Notice(
        "differ",
        f"The parameters of {ranks_text(odd)} differ from those of the other ranks after step {step}{since}.\n"
        "  Next: `lockstep verify` finds the first step, the parameter and the cause (law SAME).",
        wrong=True,
    )


def _out_of_step(sights: Sequence[Sight]) -> Iterator[Notice]:
    """The same collective, called in different steps: one rank has passed over a step."""
    if not all(sight.marks is not None and sight.marks.comparable for sight in sights):
        return
    entries = [{entry.number: entry for entry in sight.marks.entries} for sight in sights if sight.marks is not None]
    shared = sorted(set.intersection(*(set(one) for one in entries))) if entries else []
    for number in shared:
        steps = {sight.rank: one[number].step for sight, one in zip(sights, entries, strict=True)}
        if len(set(steps.values())) > 1:
            behind = [rank for rank, step in steps.items() if step < max(steps.values())]
            done = ", ".join(f"{step} (rank {rank})" for rank, step in sorted(steps.items())[:8])
            yield Notice(
                "out of step",
                f"{ranks_text(behind).capitalize()} passed over a step: in {entry_text(entries[0][number])} ranks have"
                f" done {done} steps.\n  Gradients of different steps are averaged.\n"
                "  Next: an exception that one rank swallows, or a `continue` on one rank: all ranks must skip together"
                " (rule LS121; `lockstep verify`).",
                wrong=True,
            )
            return


def _slow_data(sights: Sequence[Sight]) -> Iterator[Notice]:
    slow = []
    for sight in sights:
        marks, pace = sight.marks, sight.pace_s
        if marks is None or pace is None or marks.step < _STEPS or not marks.batches:
            continue
        per_step = marks.data_ns / 1e9 / marks.step
        if per_step > _DATA_S and per_step > _DATA_SHARE * pace:
            slow.append((sight.rank, per_step, pace))
    if slow:
        rank, per_step, pace = max(slow, key=lambda item: item[1])
        yield Notice(
            "slow data",
            f"{ranks_text([item[0] for item in slow]).capitalize()} wait{'s' * (len(slow) == 1)} for data most of the"
            f" time: {per_step:.2f} s of a step of {pace:.2f} s on rank {rank}.\n"
            "  Next: more loader workers, a cheaper transform, or data on a faster disk.",
        )


def _straggler(sights: Sequence[Sight]) -> Iterator[Notice]:
    """Whoever comes last to the first reduction of nearly every step, by much. Only ranks of one clock are compared."""
    node = sights[0].node if sights else 0
    arrivals = {
        sight.rank: {number: at for number, _, at in sight.marks.steps}
        for sight in sights
        if sight.marks is not None and sight.node == node and sight.marks.count  # else nobody waits for anybody
    }
    paces = [pace for sight in sights if (pace := sight.pace_s) is not None]
    if len(arrivals) < 2 or not paces:
        return
    shared = sorted(set.intersection(*(set(one) for one in arrivals.values())))[-_STEPS:]
    if len(shared) < _STEPS:
        return
    last: list[int] = []
    lags: list[float] = []
    for step in shared:
        ordered = sorted((one[step], rank) for rank, one in arrivals.items())
        last.append(ordered[-1][1])
        lags.append((ordered[-1][0] - ordered[0][0]) / 1e9)
    slowest, lag, pace = max(set(last), key=last.count), median(lags), median(paces)
    if last.count(slowest) >= 0.8 * len(last) and lag > max(_LAG_S, _LAG_SHARE * pace):
        yield Notice(
            "straggler",
            f"Rank {slowest} is the last in {last.count(slowest)} of {len(last)} steps: the others wait {lag:.2f} s of"
            f" a step of {pace:.2f} s for it.\n"
            "  Next: look at what its machine or GPU does besides; `lockstep doctor` compares the ranks.",
        )
