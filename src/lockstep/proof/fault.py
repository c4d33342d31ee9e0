"""The fault rung: one rank is killed, one throws an error; what the others do, and what is left."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from lockstep.core.finding import Finding
from lockstep.core.proof import Rung, Status
from lockstep.launch.script import Manner
from lockstep.proof import resume
from lockstep.proof.aftermath import Aftermath, aftermath
from lockstep.proof.align import views
from lockstep.proof.question import Stage
from lockstep.proof.strike import FaultWatch, Strike, Struck, script_as_python
from lockstep.proof.takes import Take
from lockstep.trace.events import File
from lockstep.trace.feed import FeedPlan
from lockstep.trace.trace import RankTrace

NAME = "fault"
EARLY_S = 15.0
"""A first save that comes later than so many seconds after the start is not waited for."""
SLACK_S = 30.0
"""A fault has to fall within three times as long as the untouched run took to come there, and so many seconds."""


def fault(stage: Stage) -> Rung | None:
    """A rank throws an error; in another run one is killed: after the first save, or in a save where a resume is
    claimed. None where there are no steps."""
    calm = stage.plain()
    total = min((len(views(rank)) for rank in calm.trace.ranks), default=0)
    if not total:
        return None
    last = stage.num_ranks - 1
    strikes = (Strike("raise", last, min(2, total - 1)), _kill(stage, calm, total, last))
    told, findings = [], []
    for strike in strikes:
        take = _struck(stage, calm, strike)
        seen = aftermath(take, strike, calm, 1 if stage.question.settings.spawns else stage.num_ranks)
        if seen.mark is None:
            said = f"rank {strike.rank} did not come to {'the save at ' * (strike.kind == 'save')}step {strike.step}"
            return Rung(NAME, Status.ABSTAIN, f"{said}: {take.problem or 'it ended before'}")
        findings += [one for one in seen.findings if one not in findings]
        serious = stage.question.serious(seen.findings)
        if serious:
            return _broken(strike, serious[0], tuple(findings))
        told.append(_said(stage, strike, seen))
        if strike.kind != "raise":
            left = _goes_on(stage, take, strike)
            if left is not None and left.status is not Status.PASS:
                return replace(left, findings=tuple(findings))
            told += [] if left is None else [left.said]
    return Rung(NAME, Status.PASS, "; ".join(told), findings=tuple(findings))


def _kill(stage: Stage, calm: Take, total: int, last: int) -> Strike:
    """Which rank is killed where."""
    if stage.question.resume is not None:
        unbroken = resume.unbroken_take(stage)
        steps = min((len(views(rank)) for rank in unbroken.trace.ranks), default=0)
        saved = [step for step in resume.saves(unbroken.trace, stage.question.resume) if step < steps]
        if len(saved) > 1 and "LS417" not in stage.question.accept:
            inside = _save_at(unbroken, saved[1], stage.question.resume)
            if inside is not None:
                return inside
        if saved:
            return Strike("kill", last, min(saved[0] + 1, steps - 1))  # the save is over by then
    first = min((step for step in resume.saves(calm.trace, ()) if step < total), default=None)
    if first is None or _seconds_to(calm.trace.ranks[0], first) > EARLY_S:
        first = min(2, total - 1)
    return Strike("kill", last, first)


def _save_at(unbroken: Take, step: int, arguments: tuple[str, ...]) -> Strike | None:
    """The call of torch.save at this step that a resume would read, None where something else saves."""
    names = {Path(word.rpartition("=")[2]).name for word in arguments} - {""}
    for rank in unbroken.trace.ranks:
        files = [one for one in rank.of(File) if one.step == step]
        calls = [one for one in files if one.op == "save" and one.end]
        moved = {one.path for one in files if one.op == "rename" and names & set(Path(one.target).parts)}
        for nth, call in enumerate(calls):
            if call.path in moved or names & set(Path(call.path).parts):
                return Strike("save", rank.rank, step, nth)
        if calls:
            return Strike("save", rank.rank, step)
    return None


def _struck(stage: Stage, calm: Take, strike: Strike) -> Take:
    """The program with a fault in one rank."""
    settings = stage.question.settings
    due_s = 3 * _seconds_to(calm.trace.ranks[-1], strike.step + 1) + SLACK_S
    return stage.studio.take(
        {"kill": "one rank killed", "save": "killed while saving", "raise": "one rank failing"}[strike.kind],
        stage.question.program,
        stage.num_ranks,
        Struck(fixed=True, strike=strike),
        feed=FeedPlan("own", stage.studio.folder),
        manner=Manner(),
        keep=False,
        target=script_as_python,
        watched=partial(
            FaultWatch,
            num_ranks=stage.num_ranks,
            due_s=due_s,
            limit_s=settings.limit_s,
            quiet_s=settings.quiet_s,
        ),
    )


def _seconds_to(rank: RankTrace, step: int) -> float:
    """From the start of a rank to its first event after so many steps (to its last one, if it makes fewer)."""
    first = rank.events[0].time
    return max(next((one.time for one in rank.events if one.step >= step), rank.events[-1].time) - first, 0.0)


def _goes_on(stage: Stage, broken: Take, strike: Strike) -> Rung | None:
    """Whether a fresh run goes on from what is left, bit for bit; None where no arguments for it are given."""
    if stage.question.resume is None:
        return None
    unbroken = resume.unbroken_take(stage)
    if not resume.saves(unbroken.trace, stage.question.resume):
        return None
    rung = resume.judge_left(stage, unbroken, broken, strike.step, alone=False)
    if rung.status is Status.PASS:
        return replace(rung, name=NAME, said="resumed, it equals the unbroken run bit for bit")
    status = Status.FAIL if rung.status is Status.ERROR else rung.status
    when = "while it saved" if strike.kind == "save" else f"after {strike.step} steps"
    return replace(rung, name=NAME, status=status, said=f"rank {strike.rank} was killed {when}: {rung.said}")


def _said(stage: Stage, strike: Strike, seen: Aftermath) -> str:
    if strike.kind == "raise":
        if seen.together:
            return f"an error on rank {strike.rank} in step {strike.step}: all ranks left the step out together"
        gone = f"all {stage.num_ranks} processes gone in {seen.seconds:.2f} s"
        return f"an error on rank {strike.rank} in step {strike.step}: {gone}"
    how = f"in its save (step {strike.step})" if strike.kind == "save" else f"at step {strike.step}"
    said = f"rank {strike.rank} killed {how}: in {seen.seconds:.2f} s"
    if stage.question.resume is not None or not seen.whole:
        return said
    return f"{said}; {seen.whole[0]} is whole"


def _broken(strike: Strike, worst: Finding, findings: tuple[Finding, ...]) -> Rung:
    fault = {"kill": "was killed", "save": "was killed while it saved", "raise": "threw an error"}[strike.kind]
    said = f"rank {strike.rank} {fault} in step {strike.step}: {worst.code}, {worst.seen}"
    return Rung(NAME, Status.FAIL, said, findings=findings)
