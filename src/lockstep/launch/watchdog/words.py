"""An alarm in words: who, where, since when, what the others do, what to try next."""

from collections.abc import Sequence

from lockstep.core.words import ranks_text
from lockstep.launch.watchdog.assess import Alarm, has_deadline
from lockstep.launch.watchdog.limits import Limits
from lockstep.launch.watchdog.sight import Sight
from lockstep.trace.progress import Entry, Phase, Reading

_PHASES = {
    Phase.START: "starting",
    Phase.JOIN: "joining the process group",
    Phase.DATA: "waiting for the next batch",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.STEP: "optimizer step",
    Phase.COLLECTIVE: "collective",
    Phase.SAVE: "saving",
    Phase.LOAD: "loading",
    Phase.COMPILE: "compiling",
    Phase.SCRIPT: "the script",
    Phase.END: "ending",
}


def entry_text(entry: Entry) -> str:
    """A collective as a user would name it."""
    where = f" ({place})" if (place := _short(entry.place)) else ""
    if entry.op == "gradients":
        return f"the all_reduce of the gradients of step {entry.step}, backward{where}"
    if entry.op == "buffers":
        return f"the broadcast of the buffers before step {entry.step}, forward{where}"
    about = f" of {entry.about}" if entry.about else ""
    return f"{entry.op}{about}{where}"


def activity(sight: Sight) -> str:
    """What a rank does, where, in half a sentence."""
    if sight.done:
        return "is done and has ended"
    if sight.ended:
        return f"was in {_last_seen(sight)}" if sight.marks is not None else "has ended"
    if sight.marks is None:
        return "has not begun" + (f": in {sight.spot}" if sight.spot else "")
    entry = sight.inside
    if entry is not None:
        return f"waits in {entry_text(entry)}"
    if sight.marks.now:
        op, _, place = sight.marks.now.partition("\t")
        return f"waits in {op}" + (f" ({place})" if (place := _short(place)) else "")
    if not sight.spot:
        return (sight.doing or f"is in {_phase(sight.marks)}") + _moment(sight)
    return f"in {sight.spot}" + _moment(sight) + (f"; {sight.doing}" if sight.doing else "")


def _last_seen(sight: Sight) -> str:
    assert sight.marks is not None
    return entry_text(sight.inside) if sight.inside is not None else _phase(sight.marks) + _moment(sight)


def _moment(sight: Sight) -> str:
    assert sight.marks is not None
    phase = _phase(sight.marks)
    beside = "" if phase == "the script" or not sight.spot else f"{phase}, "
    return f" ({beside}after step {sight.marks.step})" if sight.marks.step else f" ({beside}before the first step)"


def _phase(marks: Reading) -> str:
    return "evaluation" if marks.evaluating else _PHASES[marks.phase]


def headline(alarm: Alarm, sights: Sequence[Sight]) -> str:
    """What is wrong, in one line, without the rank that it begins with."""
    first = next(sight for sight in sights if sight.rank == alarm.ranks[0])
    silent = f"{alarm.silent_s:.0f} s"
    if alarm.kind == "stopped":
        return "was stopped (SIGSTOP) and cannot go on"
    if alarm.kind == "left":
        return f"left early: done after step {_step(first)}, and the others still wait"
    if alarm.kind == "mismatch":
        return "called another collective than the other ranks"
    if alarm.kind == "together":
        entry = first.inside
        assert entry is not None
        return f"are all in {entry_text(entry)}, and none comes back, since {silent}"
    return f"{'do' if len(alarm.ranks) > 1 else 'does'} not advance since {silent}: {activity(first)}"


def _step(sight: Sight) -> int:
    return sight.marks.step if sight.marks is not None else 0


def others(alarm: Alarm, sights: Sequence[Sight]) -> str:
    """What all ranks but the first do, those that do the same together."""
    groups: dict[str, list[int]] = {}
    for sight in sights:
        if sight.rank != alarm.ranks[0] and alarm.kind != "together":
            groups.setdefault(_side(alarm, sight), []).append(sight.rank)
    return "; ".join(f"{ranks_text(ranks)} {in_number(text, ranks)}" for text, ranks in groups.items())


def _side(alarm: Alarm, sight: Sight) -> str:
    mine = next((entry for rank, entry in alarm.sides if rank == sight.rank), None)
    return f"called {entry_text(mine)}" if mine is not None else activity(sight)


def in_number(text: str, ranks: Sequence[int]) -> str:
    """An activity of one rank, as the activity of so many."""
    if len(ranks) > 1:
        for one, many in (("waits ", "wait "), ("is ", "are "), ("has ", "have "), ("was ", "were ")):
            if text.startswith(one):
                return many + text.removeprefix(one)
    return text


def where(alarm: Alarm, sights: Sequence[Sight]) -> str:
    """The line of the first rank of the alarm."""
    first = next(sight for sight in sights if sight.rank == alarm.ranks[0])
    mine = next((entry for rank, entry in alarm.sides if rank == first.rank), None)
    if mine is not None:
        return f"{entry_text(mine)} (its collective number {mine.number})"
    if alarm.kind == "left" and not (first.done and first.spot) and first.marks is not None and first.marks.entries:
        return f"{entry_text(first.marks.entries[-1])} was its last collective"
    return first.spot


def advice(alarm: Alarm, sights: Sequence[Sight]) -> str:
    """What to try next."""
    first = next(sight for sight in sights if sight.rank == alarm.ranks[0])
    if alarm.kind == "stopped":
        return (
            "find what stopped it (a debugger, `kill -STOP`); `fg` or `kill -CONT` comes too late once a run is ended"
        )
    if alarm.kind == "mismatch":
        return (
            "look at the branch that leads there: a collective, or a forward through the wrapper, under a condition"
            " that differs between ranks (rule LS113), or a loop that one rank has left before the others (LS209);"
            " `lockstep verify` finds the first one"
        )
    if alarm.kind == "left":
        return (
            "all ranks must take the same number of steps: a sampler that pads or drops, one decision for all to stop,"
            " no exception or `continue` that passes over a step on one rank (rule LS209; `lockstep verify` shows the"
            " counts)"
        )
    if alarm.kind == "together":
        return "the connection between the ranks is stuck: `lockstep doctor` measures it; NCCL_DEBUG=INFO tells more"
    if first.marks is not None and first.marks.phase == Phase.DATA:
        return "look at the dataset's line above; `data.workers=0` / `num_workers=0` shows an error of a worker"
    if first.marks is not None and first.marks.evaluating:
        return "if this evaluation is meant to take so long, nothing: the others wait for it"
    return "if this work is meant to take so long, nothing: the others wait for it; else mend that line"


def report(alarm: Alarm, sights: Sequence[Sight], limits: Limits) -> str:
    """The block that is printed while the run goes on."""
    who = ranks_text(alarm.ranks).capitalize()
    lines = [f"{who} {headline(alarm, sights)}."]
    if len(sights) > 1 and (rest := others(alarm, sights)):
        lines.append(f"  Others: {rest}")
    lines.append(f"  Next: {advice(alarm, sights)}")
    if has_deadline(sights, limits):
        first = next(sight for sight in sights if sight.rank == alarm.ranks[0])
        ended_s = max(limits.deadline_s, first.limit_s(limits))
        lines.append(f"  The run is ended after {ended_s:.0f} s without progress (--stall-timeout).")
    return "\n".join(lines)


def _short(place: str) -> str:
    """`file.py:12`; "" for the command `lockstep` itself, which is nobody's line."""
    name = place.rpartition("/")[2]
    return "" if name.startswith("lockstep:") else name
