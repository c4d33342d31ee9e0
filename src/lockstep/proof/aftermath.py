"""What became of a run after one of its ranks had met with a fault, as findings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.proof import sandbox
from lockstep.proof.align import views
from lockstep.proof.strike import GONE_S, Mark, Strike, read_mark, read_stack, script_as_python
from lockstep.proof.takes import Take, workspace_of
from lockstep.proof.whole import damage, is_archive
from lockstep.rules import nothing_swallowed
from lockstep.trace.events import Batch, Collective, File, Forward, Raised
from lockstep.trace.trace import RankTrace

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
MUST = f"a rank that fails ends with an exit code other than 0, and all processes are gone within {GONE_S:g} s"


@dataclass(frozen=True)
class Aftermath:
    """mark: of the fault, None where it has not fallen. seconds: from it until the last process was gone, as far as
    that was waited for. findings: what is wrong with how it went. whole: names of saved files that can be read.
    together: no rank ended, and all left the same step out."""

    mark: Mark | None
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    whole: tuple[str, ...] = ()
    together: bool = False


def aftermath(take: Take, strike: Strike, calm: Take, launched: int) -> Aftermath:
    """Judge a take.

    Args:
        take: with the fault. calm: the same program to its end without one.
        launched: processes that the launcher started: the ranks, or one that starts them itself.
    """
    mark = read_mark(take.folder.parent)
    if mark is None:
        return Aftermath(None)
    mark = _renamed(mark, take)
    broken, whole = _files(take, calm)
    swallowed = tuple(_swallowed(take, strike, mark))
    found = [*swallowed, *_left(take, calm), *([_half(broken, whole)] if broken else [])]
    if not swallowed and not went_on(take):
        found += _stayed(take, strike, mark) or _silent(take, strike, mark, launched)
    return Aftermath(mark, max(take.over - mark.time, 0.0), tuple(found), whole, went_on(take))


def went_on(take: Take) -> bool:
    """Whether every rank has made another step after the fault."""
    return len(list(take.folder.parent.glob("went-on-*"))) >= take.trace.num_ranks


def _swallowed(take: Take, strike: Strike, mark: Mark) -> Iterator[Finding]:
    if went_on(take) and _together(take, strike):
        return  # all have left out the same step
    found = list(nothing_swallowed.dynamic(take.trace))
    yield from found
    if not found and went_on(take):
        seen = (
            f"rank {strike.rank} failed in step {strike.step}, and all ranks went on training without this step of it"
        )
        next_step = "let the error end the training, or agree on all ranks to leave the step out"
        yield Finding("LS416", Severity.ERROR, f"{seen}.", MUST, next_step, (_origin(strike, mark),))


def _together(take: Take, strike: Strike) -> bool:
    """Whether every rank that made the step after the fault had seen as many batches by then."""
    seen = []
    for rank in take.trace.ranks:
        view = next((one for one in views(rank) if one.step.step == strike.step), None)
        if view is None:
            return False
        seen.append(sum(1 for one in rank.events if isinstance(one, Batch | Forward) and one.step <= strike.step))
    return len(set(seen)) == 1


def _stayed(take: Take, strike: Strike, mark: Mark) -> list[Finding]:
    """The rank that failed is still there: it waits for something on its way out."""
    late = take.cut == "fault"
    waits = _collective_after(_rank(take, strike.rank)) if strike.kind == "raise" else None
    if waits is None and not late:
        return []
    if waits is not None:
        what = f"after its error rank {strike.rank} called {waits.op}, which the other ranks do not join"
        seen = f"{what}: it waited there" if late else f"{what}: with gloo it failed, with NCCL it waits"
        where, deed = Place.parse(waits.at), f"called {waits.op}"
    else:
        where, doing = _stuck(take)
        seen = f"{GONE_S:g} s after rank {strike.rank} had failed, its processes were still there{doing}"
        deed = "still here"
    next_step = (
        "let the error end the process: no barrier, all_reduce or other wait in `finally`, `except` or an exit handler"
    )
    witnesses = (_witness(deed, strike.rank, mark.step, where), _origin(strike, mark))
    return [Finding("LS416", Severity.ERROR, f"{seen}.", MUST, next_step, witnesses)]


def _stuck(take: Take) -> tuple[Place | None, str]:
    """The user's line that the rank that failed is at, and what it does."""
    here, stack = str(workspace_of(take)), read_stack(take.folder.parent)
    lines = [frame.groups() for frame in _FRAME.finditer(stack)]
    mine = next(((path, line) for path, line, _ in lines if path.startswith(here)), None)
    call = next((name for path, _, name in lines if "distributed" in path and name != "wrapper"), "")
    doing = f", in {call}" if call else ""
    if any(name == script_as_python.__name__ for *_, name in lines):
        doing += ": an exit handler, or a thread that Python waits for at its exit"
    return (None if mine is None else Place(mine[0].removeprefix(here), int(mine[1]))), doing


def _collective_after(rank: RankTrace | None) -> Collective | None:
    """The first collective that a rank entered after its error and that did not end well."""
    events = rank.events if rank is not None else ()
    failed = next((at for at, one in enumerate(events) if isinstance(one, Raised)), len(events))
    for event in events[failed:]:
        if isinstance(event, Collective) and not event.done:
            return event
    return None


def _silent(take: Take, strike: Strike, mark: Mark, launched: int) -> list[Finding]:
    """All are gone, and nobody would know that or where something had failed."""
    found = []
    if launched == take.trace.num_ranks > 1:
        code = next((end.code for end in take.outcome.ends if end.rank == strike.rank), None)
        rank = _rank(take, strike.rank)
        end = rank.end if rank is not None else None
        if strike.kind == "raise" and code == 0:
            seen = f"rank {strike.rank} ended with exit code 0 after its error"
            others = [one.code for one in take.outcome.ends if one.rank != strike.rank]
            seen += ", and so did all others" if not any(others) else ": the others' lost connection is what is seen"
            place = Place.parse(end.at) if end is not None else None
            witnesses = (_witness("ended with code 0", strike.rank, mark.step, place), _origin(strike, mark))
            next_step = "let the error go up, or end with `sys.exit(1)`"
            found.append(Finding("LS416", Severity.ERROR, f"{seen}.", MUST, next_step, witnesses))
        elif strike.rank not in (named := _named(take.outcome.verdict.text)) and named:
            seen = f"rank {strike.rank} failed, and rank {named[0]} is named: it failed of its own accord"
            next_step = "let the error of a lost connection go up as it is: it tells the launcher that it is no cause"
            found.append(Finding("LS416", Severity.ERROR, f"{seen}.", MUST, next_step, (_origin(strike, mark),)))
    elif launched == 1 and take.outcome.ends and take.outcome.ends[0].code == 0:
        seen = f"rank {strike.rank} failed, and the program that had started it ended with exit code 0"
        next_step = "let the error of a rank go up in the process that starts the ranks"
        found.append(Finding("LS416", Severity.ERROR, f"{seen}.", MUST, next_step, (_origin(strike, mark),)))
    return found


def _named(text: str) -> list[int]:
    """The ranks that the first line of a verdict begins with."""
    first = re.match(r"[Rr]anks? (\d+(?:, \d+)*)", text)
    return [int(one) for one in first[1].split(", ")] if first else []


def _left(take: Take, calm: Take) -> Iterator[Finding]:
    more = [one for one in take.left if one not in calm.left]
    if more:
        seen = f"{len(more)} process{'es' * (len(more) > 1)} that a rank had started outlived it: {more[0][:120]}"
        yield Finding(
            "LS418",
            Severity.DEVIATION,
            f"{seen}.",
            "what a rank has started ends with it, however the rank ends",
            "start it in the rank's own session, or let it end when a pipe to its parent closes",
            tuple(_witness(one[:200], None, None, None) for one in more[:3]),
        )


@dataclass(frozen=True)
class _Broken:
    """A file that was whole when the program had ended by itself, and that is not now."""

    path: str
    wrong: str
    saved: File
    written: float


def _files(take: Take, calm: Take) -> tuple[_Broken | None, tuple[str, ...]]:
    """The file that was written last of those that are damaged, and the names of those that are whole."""
    broken: list[_Broken] = []
    whole = []
    files = [one for rank in calm.trace.ranks for one in rank.of(File)]
    saved = {one.target: one for one in files if one.op == "rename"}
    saved |= {one.path: one for one in files if one.op in ("save", "write")}
    for path, event in saved.items():
        here, there = (sandbox.inside(workspace_of(one), Path(path)) for one in (take, calm))
        try:
            if here.is_symlink() or not is_archive(there) or damage(there):
                continue
            wrong = damage(here)
            written = here.stat().st_mtime
        except OSError:  # not there: not yet saved, moved away, or removed
            continue
        if wrong:
            broken.append(_Broken(path, wrong, event, written))
        else:
            whole.append(here.name)
    return max(broken, key=lambda one: one.written, default=None), tuple(whole)


def _half(broken: _Broken, whole: tuple[str, ...]) -> Finding:
    left = f"whole ones beside it: {', '.join(whole[:3])}" if whole else "no whole one is left"
    return Finding(
        "LS417",
        Severity.DEVIATION,
        f"after a kill {Path(broken.path).name} is left damaged ({broken.wrong}), {left}.",
        "a checkpoint that a resume would read is whole at every moment",
        'save to "NAME.tmp", then `os.replace("NAME.tmp", "NAME")`; or declare it with --accept LS417',
        (_witness("saves in place", None, None, Place.parse(broken.saved.at)),),
    )


def _rank(take: Take, number: int) -> RankTrace | None:
    return next((one for one in take.trace.ranks if one.rank == number), None)


def _origin(strike: Strike, mark: Mark) -> Witness:
    deed = "threw an error" if strike.kind == "raise" else "was killed"
    return _witness(f"{deed} here", strike.rank, mark.step, Place.parse(mark.at))


def _witness(text: str, rank: int | None, step: int | None, place: Place | None) -> Witness:
    return Witness(text, rank, step, place)


def _renamed(mark: Mark, take: Take) -> Mark:
    """With paths as the user knows them."""
    here = str(workspace_of(take))
    return replace(mark, at=mark.at.replace(here, ""), path=mark.path.replace(here, ""))
