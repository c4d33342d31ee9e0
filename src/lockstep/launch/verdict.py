"""From what the ranks left behind to one readable block and one exit code. Pure: no files, no processes, no clock."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.core.outcome import Exit
from lockstep.core.words import ranks_text
from lockstep.launch.advice import next_step
from lockstep.launch.record import Failure
from lockstep.launch.watchdog.words import in_number


@dataclass(frozen=True)
class RankEnd:
    """How the process of a rank ended, as its launcher saw it.

    code: exit code, negative for a signal, None if the launcher had to end it. done: its work was complete.
    time_ns: when it was last seen alive. where: the user's frame it crashed in, if it left one. killer: who sent
    SIGKILL, as far as the kernel tells.
    """

    rank: int
    code: int | None
    done: bool = False
    time_ns: int = 0
    where: str = ""
    killer: str = ""


@dataclass(frozen=True)
class Verdict:
    """text: what to print ("" if there is nothing to say). exit: how the command ends."""

    text: str
    exit: Exit


def judge(
    failures: Sequence[Failure],
    ends: Sequence[RankEnd],
    logs: str = "",
    alarm: Failure | None = None,
    activities: Mapping[int, str] | None = None,
) -> Verdict:
    """Which rank failed first, where, what became of the others, what to try next.

    A cause of its own beats a lost connection, which only says that another rank was gone; then the earliest counts.

    Args:
        failures: the records that ranks left.
        ends: one for every rank of the run.
        logs: where the user finds more, named at the end.
        alarm: what the launcher saw from outside; it comes before all that ranks say.
        activities: what each rank did shortly before, {rank: words}.
    """
    told = {failure.rank: failure for failure in failures}
    silent = {end.rank: _silent(end) for end in ends if end.rank not in told and _failed(end)}
    causes = sorted((told | silent).values(), key=lambda it: (it.kind == "consequence", it.time_ns, it.rank))
    if alarm is not None and not (causes and causes[0].explained):
        causes = [alarm, *(cause for cause in causes if cause.rank != alarm.rank)]
    if not causes:
        return Verdict(_aborted(ends), Exit.DONE)
    first = causes[0]
    same = [cause.rank for cause in causes if (cause.kind, cause.message) == (first.kind, first.message)]
    if first.explained:
        lead = first.message if len(same) == len(ends) else f"{ranks_text(same).capitalize()}: {_said(first)}"
        return Verdict(lead, _exit_of(first))
    return Verdict(_block(first, causes, ends, logs, activities or {}), _exit_of(first))


def describe(failure: Failure, num_ranks: int) -> str:
    """One rank's failure for a process that has no launcher of ours to compare it with others."""
    who = f"Rank {failure.rank}: " if num_ranks > 1 else ""
    if failure.explained or failure.kind == "interrupt":
        return who + _said(failure) if who else failure.message
    return _block(failure, [failure], [RankEnd(rank, None) for rank in range(num_ranks)], "", {}, alone=True)


def _said(failure: Failure) -> str:
    """The message without the rank that some messages begin with."""
    return failure.message.removeprefix(f"rank {failure.rank}: ")


def signal_text(code: int) -> str:
    """A negative exit code as the end of a sentence that begins with the rank."""
    known = {
        signal.SIGKILL: "was killed by SIGKILL (by the kernel's out-of-memory killer, or by hand)",
        signal.SIGSEGV: "crashed with a segmentation fault (SIGSEGV)",
        signal.SIGBUS: "crashed with a bus error (SIGBUS; most often shared memory is full)",
        signal.SIGABRT: "aborted (SIGABRT)",
        signal.SIGTERM: "was ended by SIGTERM (from outside)",
    }
    try:
        return known.get(signal.Signals(-code), f"was ended by {signal.Signals(-code).name}")
    except ValueError:
        return f"was ended by signal {-code}"


def _failed(end: RankEnd) -> bool:
    return not end.done and end.code is not None


def _silent(end: RankEnd) -> Failure:
    """A failure for a rank that left no record: it was killed, crashed or left by itself."""
    assert end.code is not None
    if end.code == -signal.SIGKILL and end.killer:
        message = f"was killed by SIGKILL: {end.killer}"
    elif end.code < 0:
        message = signal_text(end.code)
    elif end.code == 0:
        message = "left early: its process ended with code 0 before its work was done"
    else:
        message = f"exited with code {end.code} without a message"
    return Failure(end.rank, "exit", message, end.where, "", "", end.time_ns, abs(end.code) or 1)


def _exit_of(first: Failure) -> Exit:
    """Only our own errors choose the code; a user's `sys.exit(75)` must not look like a preemption."""
    return Exit(first.exit_code) if first.explained or first.kind == "interrupt" else Exit.FAILED


def _block(
    first: Failure,
    causes: Sequence[Failure],
    ends: Sequence[RankEnd],
    logs: str,
    activities: Mapping[int, str],
    *,
    alone: bool = False,
) -> str:
    who = f"Rank {first.rank}" if len(ends) > 1 else "The run"
    if first.kind == "consequence":
        left = [end.rank for end in ends if end.done]
        lead = f"{who} lost its connection to the other ranks: {first.message}"
        if left:
            lead = f"{ranks_text(left).capitalize()} ended before the others, which still waited: {first.message}"
    elif first.kind == "stall":
        lead = first.message
    elif first.kind == "exit":
        lead = f"{who} {first.message}"
    else:
        lead = f"{who} failed{'' if len(causes) == 1 else ' first'}: {first.message}"
    parts = (
        ("Where", first.where),
        ("While", first.phase or (_last_seen(first, activities) if first.kind == "exit" else "")),
        ("Others", "" if alone else first.others or _others(first, causes, ends, activities)),
        ("Next", first.advice or next_step(first)),
        ("Logs", logs),
    )
    lines = [lead] + [f"  {label}: {text}" for label, text in parts if text]
    if first.traceback:
        lines += ["  Traceback (your frames only):", *(f"  {line}" for line in first.traceback.split("\n"))]
    return "\n".join(lines)


def _last_seen(first: Failure, activities: Mapping[int, str]) -> str:
    """What a rank did that could not say it itself."""
    seen = activities.get(first.rank, "")
    return seen.removeprefix("was in ") if seen.startswith("was in ") else ""


def _others(first: Failure, causes: Sequence[Failure], ends: Sequence[RankEnd], activities: Mapping[int, str]) -> str:
    """What became of every rank but the first, as far as it is known."""
    by_rank = {cause.rank: cause for cause in causes}
    groups: dict[str, list[int]] = {}
    for end in ends:
        if end.rank == first.rank:
            continue
        cause = by_rank.get(end.rank)
        if cause is None:
            became = "done" if end.done else "ended by the launcher"
        elif cause.kind == "consequence":
            became = (
                "lost the connection, a consequence"
                if end.rank in activities
                else "lost the connection (a consequence)"
            )
        elif cause.message == first.message:
            became = "the same"
        else:
            became = cause.message.split("\n")[0]
        if end.rank in activities and (cause is None or cause.kind == "consequence") and not end.done:
            became = f"{activities[end.rank]} ({became})"
        groups.setdefault(became, []).append(end.rank)
    return "; ".join(f"{ranks_text(ranks)}: {in_number(became, ranks)}" for became, ranks in groups.items())


def _aborted(ends: Sequence[RankEnd]) -> str:
    bad = [end for end in ends if end.done and end.code]
    return "\n".join(
        f"Rank {end.rank} was done, then aborted in tear-down: its process "
        f"{signal_text(end.code) if end.code < 0 else f'exited with code {end.code}'}. Its work is complete."
        for end in bad
        if end.code
    )
