"""The resume rung: a fresh process goes on from what a killed one saved, and does what an unbroken run does."""

import os
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.core.proof import Cause, Difference, Rung, Status
from lockstep.launch.script import Manner
from lockstep.proof import restart
from lockstep.proof.align import views
from lockstep.proof.modes import Mode
from lockstep.proof.question import Stage
from lockstep.proof.replay import write_record
from lockstep.proof.reread import Reread, begun, point, reread
from lockstep.proof.restart import Continued, Restart
from lockstep.proof.takes import Take, workspace_of
from lockstep.trace.events import Batch, File, Loaded, RandomState
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.recorder import Recorder
from lockstep.trace.seeds import seed_all
from lockstep.trace.trace import RankTrace, Trace

NAME = "resume"


@dataclass(frozen=True)
class GoesOn(Mode):
    """A process that goes on after `done` optimizer steps of an earlier one: its randomness is that of those steps.

    killed: this process kills itself after so many steps. each: every rank has a folder of batches of its own.
    """

    done: int = 0
    killed: int | None = None
    each: bool = False

    def __call__(self, recorder: Recorder, feed: Feed | None) -> None:
        """Called when the hooks are in place, before the script."""
        super().__call__(recorder, feed)
        # Not the first process's state: what begins with it by chance must not look as if it had been restored.
        seed_all("start", self.done)
        recorder.after_step.append(lambda step: seed_all("step", self.done + step))
        if self.each and feed is not None:
            feed.plan = replace(feed.plan, folder=feed.plan.folder / str(recorder.rank))
        if self.killed is not None:
            recorder.after_step.append(lambda step: _kill(recorder) if step == self.killed else None)


def _kill(recorder: Recorder) -> None:
    recorder.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def resume(stage: Stage) -> Rung | None:
    """None where the user named no arguments for it."""
    if stage.question.resume is None:
        return None
    unbroken = unbroken_take(stage)
    if unbroken.problem and unbroken.cut != "time":
        return _failed(unbroken, "the program does not run to its end")
    saved = saves(unbroken.trace, stage.question.resume)
    total = min((len(views(rank)) for rank in unbroken.trace.ranks), default=0)
    early = [step for step in saved if step < total]
    if not early:
        when = "only when its training is over" if saved else "nothing that is seen (torch.save, or a file opened)"
        said = f"in {total} steps it saves {when}, so there is nothing to go on from; train longer behind `--`"
        return Rung(NAME, Status.ABSTAIN, said)
    kill = max(total // 2, early[0] + 1)
    if kill >= total:
        said = f"it saves first after step {early[0]} of {total}: nothing is left to compare; train longer behind `--`"
        return Rung(NAME, Status.ABSTAIN, said)
    return _judge(stage, unbroken, kill)


def _judge(stage: Stage, unbroken: Take, kill: int) -> Rung:
    broken = _take(stage, "killed", GoesOn(fixed=True, killed=kill), keep=False)
    return judge_left(stage, unbroken, broken, kill)


def unbroken_take(stage: Stage) -> Take:
    """The program on its ranks to its end, its randomness a function of the step."""
    return stage.once("unbroken", lambda name: _take(stage, name, GoesOn(fixed=True)))


def judge_left(stage: Stage, unbroken: Take, broken: Take, kill: int, *, alone: bool = True) -> Rung:
    """Whether fresh processes go on from what a broken take left as the unbroken one went on.

    Args:
        broken: ended in the midst, its randomness that of `unbroken`. kill: steps after which it was.
        alone: whether one process is to go on from it too.
    """
    other = _first_difference(unbroken.trace, broken.trace)
    if other is not None:
        said = f"two runs of the program differ at step {other} already, before any resume: nothing can be compared"
        return Rung(NAME, Status.ABSTAIN, said)
    saved = max((save for save in saves(broken.trace, stage.question.resume or ()) if save <= kill), default=None)
    if saved is None:
        said = f"killed after {kill} steps, it had not saved what an unbroken run saves by then"
        return Rung(NAME, Status.ABSTAIN, said)
    trial = _Trial(stage, unbroken, broken, kill, alone)
    resumed = trial.go_on(saved)
    if resumed.problem and resumed.cut != "time":
        return _failed(resumed, f"started again with `{trial.words}` it does not go on")
    where = restart.locate(unbroken.trace.ranks[0], resumed.trace.ranks[0], saved)
    if where is None or where.total == 0:
        return _not_loaded(trial, resumed, where)
    return _compared(trial, resumed, where, saved)


def _compared(trial: "_Trial", resumed: Take, where: Restart, saved: int) -> Rung:
    unbroken = trial.unbroken
    read = reread(unbroken.trace, resumed.trace, where.total)
    result = restart.compare(unbroken, resumed, where)
    late = _starts_late(unbroken, resumed, where) if read.kind == "same" else 0
    if result.differences and (where.total != saved or late):
        resumed = trial.go_on(where.total, late)  # with the randomness of the step at which it does go on
        read, result = reread(unbroken.trace, resumed.trace, where.total), restart.compare(unbroken, resumed, where)
    if read.kind == "shuffled" and not _indexed(unbroken.trace):
        said = f"{trial.said} {read.text}: its samples have no indices, so it cannot be given the unbroken run's"
        return Rung(NAME, Status.ABSTAIN, said)
    if read.kind == "shuffled":
        replayed = trial.go_on(where.total, replay=True)
        result = restart.compare(unbroken, replayed, where, data=False)
    if not result.differences and not result.steps:
        said = f"{trial.said} it makes no optimizer step"
        return Rung(NAME, Status.FAIL, said, (Difference(where.total, "steps", seen="none", wanted="the rest"),))
    if result.differences:
        first = result.differences[0].step
        count = f"{result.steps} step{'s' * (result.steps > 1)}"
        alike = f"is the unbroken run for {count}, and" if result.steps else "at once"
        said = f"{trial.said} it goes on from the weights after {where.total} steps; it {alike} differs at step {first}"
        causes = (_cause(result, read, where),)
        return Rung(NAME, Status.FAIL, said, result.differences, causes)
    if read.kind == "none" and not result.steps:
        return Rung(NAME, Status.ABSTAIN, "no batch of a loader was seen after the resume")
    return _passed(trial, resumed, where, result, read)


def _passed(trial: "_Trial", resumed: Take, where: Restart, result: Continued, read: Reread) -> Rung:
    said = f"{trial.said} it goes on after step {where.total} and equals the unbroken run bit for bit"
    said += f" over {result.steps} steps"
    if read.kind == "shuffled":
        said += f", given its batches ({read.text})"
    restored = _random_restored(trial.unbroken.trace, resumed.trace, where.total)
    said += "; the random state too" if restored else "; the random state is not judged"
    if not trial.alone:
        return Rung(NAME, Status.PASS, said)
    elsewhere = trial.on_one_process(where)
    return Rung(NAME, elsewhere[0], f"{said}. {elsewhere[1]}", elsewhere[2])


@dataclass
class _Trial:
    """Processes that go on from what the killed run left, each in a copy of it."""

    stage: Stage
    unbroken: Take
    broken: Take
    kill: int
    alone: bool = True
    made: int = 0

    @property
    def words(self) -> str:
        """The user's arguments."""
        return " ".join(self.stage.question.resume or ()) or "the same arguments"

    @property
    def said(self) -> str:
        """How it came to this."""
        return f"killed after {self.kill} steps and resumed,"

    def go_on(self, done: int, late: int = 0, replay: bool = False) -> Take:
        """A fresh process with the randomness that follows `done` steps. late: batches of its first pass that its
        sampler leaves out. replay: it is given the unbroken run's batches."""
        self.made += 1
        read = begun(self.unbroken.trace.ranks[0], done)
        here = point(self.unbroken.trace.ranks[0], done)
        if here is not None and late:
            read = tuple((stream, passes, late if stream == here.stream else 0) for stream, passes, _ in read)
        mode, feed = GoesOn(fixed=True, done=done, each=replay), FeedPlan("own", self.stage.studio.folder, begun=read)
        if replay:
            folder = self.stage.record("unbroken")
            write_record(self.unbroken.trace, folder)
            feed = replace(feed, role="mirror", folder=folder)
        return _take(self.stage, f"resumed {self.made}", mode, feed=feed, workspace=self.left(), again=True)

    def left(self) -> Path:
        """A copy of what the killed run left behind."""
        folder = self.stage.studio.folder / f"left-{len(self.stage.studio.takes)}"
        shutil.copytree(workspace_of(self.broken), folder, symlinks=True)
        return folder

    def on_one_process(self, where: Restart) -> tuple[Status, str, tuple[Difference, ...]]:
        """Whether it also goes on as one process, from the same weights."""
        if self.stage.question.settings.spawns:  # the arguments say how many ranks there are
            return Status.PASS, "On another number of ranks it was not tried", ()
        manner = Manner(single=not self.stage.needs_variables)
        mode = GoesOn(fixed=True, done=where.total)
        feed = FeedPlan("own", self.stage.studio.folder)
        take = _take(
            self.stage, "resumed alone", mode, feed=feed, workspace=self.left(), again=True, alone=manner, steps=1
        )
        if take.problem:
            return Status.PASS, f"As one process it does not go on: {take.problem}", ()
        found = restart.locate(self.unbroken.trace.ranks[0], take.trace.ranks[0], where.total)
        if found is None or found.total != where.total:
            seen, rest = "other weights", "As one process it goes on from other weights"
            difference = Difference(where.total, "start", seen=seen, wanted=f"those after {where.total} steps")
            return Status.FAIL, rest, (difference,)
        return Status.PASS, "As one process it goes on from the same weights", ()


def _take(
    stage: Stage,
    name: str,
    mode: Mode,
    *,
    feed: FeedPlan | None = None,
    keep: bool = True,
    workspace: Path | None = None,
    again: bool = False,
    alone: Manner | None = None,
    steps: int | None = None,
) -> Take:
    program = stage.question.program
    if again:
        program = replace(program, argv=(*program.argv, *(stage.question.resume or ())))
    return stage.studio.take(
        name,
        program,
        stage.num_ranks if alone is None else 1,
        mode,
        feed=feed or FeedPlan("own", stage.studio.folder),
        manner=alone or Manner(),
        keep=keep,
        steps=steps,
        workspace=workspace,
    )


def _failed(take: Take, text: str) -> Rung:
    lines = [line for line in "".join(take.output).splitlines() if line.strip()]
    said = f"{text}: {take.problem}." + (f" It said last: {lines[-1].strip()[:200]}" if lines else "")
    place = f" (at {take.at})" if take.at else ""
    next_step = "give --resume-args such that the program goes on from what it saved; try it by hand"
    return Rung(NAME, Status.ERROR, said, causes=(Cause(f"{take.problem}{place}", next_step),))


def saves(trace: Trace, arguments: tuple[str, ...]) -> list[int]:
    """Steps that were done at each save, of the files that the arguments name, where they name any."""
    files = [event for rank in trace.ranks for event in rank.of(File) if event.step > 0]
    saved = [event for event in files if event.op == "save" and event.end]
    saved = saved or [event for event in files if event.op in ("write", "rename") and not event.append]
    names = {Path(word.rpartition("=")[2]).name for word in arguments} - {""}
    moved = [event for event in files if event.op == "rename" and names & set(Path(event.target).parts)]
    named = moved or [event for event in saved if names & set(Path(event.path).parts)]
    return sorted({event.step for event in named or saved})


def _first_difference(unbroken: Trace, broken: Trace) -> int | None:
    for one, other in zip(unbroken.ranks, broken.ranks, strict=False):
        mine = {view.key: view.step for view in views(one)}
        for view in views(other):
            wanted = mine.get(view.key)
            if wanted is None or (view.step.after and restart.unequal(wanted.after, view.step.after)):
                return view.step.step
    return None


def _indexed(trace: Trace) -> bool:
    return all(batch.ids is not None for rank in trace.ranks for batch in rank.of(Batch) if batch.grad)


def _starts_late(unbroken: Take, resumed: Take, where: Restart) -> int:
    """Batches of its first pass that the resumed run's sampler has left out."""
    here, start = point(unbroken.trace.ranks[0], where.total), point(resumed.trace.ranks[0], 0)
    if here is None or start is None or start.batch:
        return 0
    return here.batch


def _random_restored(unbroken: Trace, resumed: Trace, steps: int) -> bool:
    """Whether its first training pass begins with torch's random state of the unbroken run's."""
    states = [_pass_state(unbroken.ranks[0], steps), _pass_state(resumed.ranks[0], 0)]
    return states[0] == states[1] != ""


def _pass_state(rank: RankTrace, steps: int) -> str:
    found = ""
    for event in rank.events:
        if isinstance(event, RandomState) and event.when == "pass" and event.step >= steps:
            found = event.torch
        if event.step > steps:
            break
    return found


def _not_loaded(trial: _Trial, resumed: Take, where: Restart | None) -> Rung:
    if not any(views(rank) for rank in resumed.trace.ranks):
        said = f"{trial.said} it makes no optimizer step"
        return Rung(NAME, Status.FAIL, said, (Difference(trial.kill, "steps", seen="none", wanted="the rest"),))
    steps, strange, number = restart.strangers(trial.unbroken.trace.ranks[0], resumed.trace.ranks[0])
    loads = [event for event in resumed.trace.ranks[0].of(Loaded) if event.given]
    reads = [event for event in resumed.trace.ranks[0].of(File) if event.op in ("load", "read")]
    if where is not None:
        said = f"{trial.said} it starts from scratch: its first weights are those that the unbroken run began with"
    elif len(strange) < number:
        few = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
        said = f"{trial.said} {len(strange)} of {number} parameters are not the saved ones: {few}"
    else:
        said = f"{trial.said} its first weights are those of no step of the unbroken run"
    short = [event for event in loads if event.matched < event.wanted]
    code, next_step = "", "load the saved weights into the model before the first step"
    if short:
        text = f"load_state_dict matched {short[0].matched} of {short[0].wanted} entries; {short[0].given} were given"
        next_step = "save and load the inner module (model.module), without `module.` in names, and with strict=True"
        code = "LS306"
    elif not reads:
        text = "no saved file was read"
    else:
        text = "they are changed once loaded" if loads else "the saved weights do not reach the model that is trained"
    seen = Difference(steps, "start", strange[0] if strange else "", 0, "other weights", "the saved ones")
    return Rung(NAME, Status.FAIL, said, (seen,), (Cause(text, next_step, code),))


def _cause(result: Continued, read: Reread, where: Restart) -> Cause:
    kinds, at_once = result.kinds, result.differences[0].step == where.total
    if read.kind in ("again", "lost"):
        return Cause(read.text, read.next_step)
    if "batch" in kinds:
        return Cause("it reads other samples than the unbroken run", "restore epoch, position and order of the data")
    if "lr" in kinds:
        return Cause("the learning rate is another one", "save and load the scheduler's state_dict, or its last step")
    if "scale" in kinds:
        return Cause("the gradient scaler begins anew", "save and load the GradScaler's state_dict")
    if kinds == {"parameter"}:
        when = "" if at_once else " later"
        text = f"gradients and rates are equal, the weights after the step are{when} not: the optimizer's state is lost"
        return Cause(text, "save and load the optimizer's state_dict (momentum, moments, its count of steps)")
    if kinds == {"steps"}:
        return Cause("it makes another number of steps", "save the epoch or step, and go on counting from it")
    if kinds == {"buffer"}:
        return Cause("a buffer is not restored", "save and load the whole state_dict, buffers too")
    if "content" in kinds:
        return Cause("the same samples have another content", "make noise on samples a function of epoch and index")
    text = "the same weights and samples give other outputs or gradients: buffers, or something that counts steps"
    return Cause(text, "save and restore whatever the forward and the loss read (buffers, averages, warm-up counters)")
