"""The resume rung on real programs: a fresh process goes on where a killed one had saved."""

import shutil
from pathlib import Path

import pytest

from lockstep.core.proof import Rung, Status
from lockstep.proof.question import Question, Stage
from lockstep.proof.resume import resume
from lockstep.proof.takes import Settings, open_studio
from lockstep.trace.script import Program
from tests.programs.catalog import ROOT
from tests.proof.apart import apart

WORDS = ("--resume", "checkpoint.pt")


def climb(script: Path, words: tuple[str, ...], argv: tuple[str, ...]) -> Rung | None:
    question = Question(Program(script, argv, script.parent), settings=Settings(), resume=words)
    with open_studio(question.settings) as studio:
        return resume(Stage(question, studio))


def judge(folder: Path, name: str, *argv: str, words: tuple[str, ...] = WORDS) -> Rung:
    script = folder / "home" / Path(name).name
    script.parent.mkdir()
    shutil.copy(ROOT / name, script)
    rung = apart(climb, script, words, argv, folder=folder)
    assert isinstance(rung, Rung)
    return rung


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> Rung:
    """The rung for a program of the catalog with some of its lines changed."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = folder / "home" / "changed.py"
    script.parent.mkdir()
    script.write_text(text, encoding="utf-8")
    rung = apart(climb, script, WORDS, (), folder=folder)
    assert isinstance(rung, Rung)
    return rung


def test_a_right_program_goes_on_as_if_it_had_never_been_killed(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/resumable.py")
    assert rung.status is Status.PASS, rung
    assert "killed after 9 steps" in rung.said and "goes on after step 6" in rung.said
    assert "over 12 steps; the random state too" in rung.said
    assert rung.said.endswith("As one process it goes on from the same weights")


WRONG = {
    # program: (step, what differs first, word of the cause)
    "resume_forgets_momentum": (6, "parameter", "optimizer's state is lost"),
    "resume_forgets_schedule": (12, "lr", "learning rate"),
    "resume_forgets_epoch": (6, "batch", "set_epoch(0) instead of set_epoch(1)"),
    "resume_module_prefix": (0, "start", "matched 0 of 4 entries"),
    "resume_same_shuffle": (6, "batch", "pass 0 again, in the same order"),
    "resume_in_mid_epoch": (8, "batch", "it begins pass 1 anew, of which 2 batches"),
}
SLOW = [pytest.param(name, marks=[] if name == "resume_forgets_momentum" else pytest.mark.slow) for name in WRONG]


@pytest.mark.parametrize("name", SLOW)
def test_what_is_not_restored_is_named(name: str, tmp_path: Path) -> None:
    rung = judge(tmp_path, f"wrong/{name}.py")
    step, what, words = WRONG[name]
    assert rung.status is Status.FAIL, rung
    first = rung.differences[0]
    assert (first.step, first.what) == (step, what), rung
    assert words in rung.causes[0].text


@pytest.mark.slow
def test_another_shuffle_of_a_whole_epoch_is_no_fault(tmp_path: Path) -> None:
    old = 'first = saved["epoch"] + 1\n'
    new = f"{old}        shuffled.manual_seed(100 + first)\n"
    rung = changed(tmp_path, "wrong/resume_same_shuffle.py", (old, new))
    assert rung.status is Status.PASS, rung
    assert "given its batches (it reads pass 1 in another order" in rung.said


@pytest.mark.slow
def test_a_sampler_that_starts_in_mid_epoch_with_dropout(tmp_path: Path) -> None:
    """Randomness belongs to the step, although the resumed process counts its batches from zero."""
    rung = changed(
        tmp_path,
        "wrong/resume_in_mid_epoch.py",
        ("nn.Tanh(), ", "nn.Tanh(), nn.Dropout(0.2), "),
        ("first = step = 0", "first = step = skip = 0"),
        ('saved["epoch"], saved["step"]\n', 'saved["epoch"], saved["step"]\n        skip = step % len(loader)\n'),
        (
            "        for inputs, targets in loader:\n",
            "        ids = list(sampler)[skip * (GLOBAL_BATCH // num_ranks) :]\n        skip = 0\n"
            "        for inputs, targets in DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=ids):\n",
        ),
    )
    assert rung.status is Status.PASS, rung
    assert "goes on after step 8" in rung.said and "over 10 steps" in rung.said


def test_arguments_that_the_program_does_not_know(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/resumable.py", "--epochs", "2", words=("--continue",))
    assert rung.status is Status.ERROR
    assert "exit code 2" in rung.said and "unrecognized arguments: --continue" in rung.said


def test_a_program_that_saves_only_at_its_end_cannot_be_judged(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/resumable.py", "--epochs", "1")
    assert rung.status is Status.ABSTAIN
    assert "in 6 steps it saves only when its training is over" in rung.said
