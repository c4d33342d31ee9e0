from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.core.finding import Finding, Severity
from lockstep.proof import question as module
from lockstep.proof.align import Layout
from lockstep.proof.question import Question, Stage
from lockstep.proof.takes import Settings
from lockstep.trace.script import Program

TRAIN, OTHER = Program(Path("train.py"), ("--a",), Path("/home/me")), Program(Path("other.py"))


def finding(code: str, severity: Severity) -> Finding:
    return Finding(code, severity, "", "", "")


def test_the_original_is_the_program_itself_or_another() -> None:
    assert Question(TRAIN).original is TRAIN
    assert Question(TRAIN, OTHER).original is OTHER


def test_what_breaks_a_rung() -> None:
    error, deviation = finding("LS101", Severity.ERROR), finding("LS116", Severity.DEVIATION)
    note = finding("LS204", Severity.NOTE)
    every = (error, deviation, note)
    assert Question(TRAIN).serious(every) == (error, deviation)
    assert Question(TRAIN, accept=("LS116",)).serious(every) == (error,)
    assert Question(TRAIN, accept=("LS101",)).serious(every) == (error, deviation)  # an error cannot be declared


class Studio:
    """In place of the one that runs ranks: notes what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[SimpleNamespace] = []

    def take(self, name: str, program: Program, num_ranks: int, mode: Any, **more: Any) -> Any:
        self.asked.append(SimpleNamespace(name=name, program=program, num_ranks=num_ranks, mode=mode, **more))
        return SimpleNamespace(name=name, trace=None)


def stage_of(folder: Path, accept: tuple[str, ...] = ()) -> tuple[Stage, Studio]:
    studio = Studio(folder)
    question = Question(TRAIN, OTHER, Settings(num_ranks=2, steps=5), accept)
    return Stage(question, studio), studio  # type: ignore[arg-type]


def test_takes_that_several_rungs_need_are_made_once(tmp_path: Path) -> None:
    stage, studio = stage_of(tmp_path)
    assert stage.reference() is stage.reference()
    assert stage.mirror() is stage.mirror()
    assert stage.plain() is stage.plain()
    assert [one.name for one in studio.asked] == ["reference", "mirror", "two processes"]
    reference, mirror, plain = studio.asked
    assert (reference.program, reference.num_ranks, reference.manner.single) == (OTHER, 1, True)
    assert (mirror.program, mirror.num_ranks, mirror.feed.role) == (TRAIN, 2, "mirror")
    assert mirror.feed.folder == reference.feed.folder
    assert (reference.steps, mirror.steps) == (5, 5)
    assert reference.mode.fixed
    assert mirror.mode.fixed
    assert (plain.mode.fixed, plain.keep, "feed" in vars(plain)) == (False, False, False)


def test_one_rank_is_another_take_than_two(tmp_path: Path) -> None:
    stage, studio = stage_of(tmp_path)
    stage.mirror()
    alone = stage.with_one_rank()
    alone.mirror()
    alone.reference()
    stage.reference()
    assert [(one.name, one.num_ranks) for one in studio.asked] == [("mirror", 2), ("mirror", 1), ("reference", 1)]


def test_a_program_that_needs_torchruns_variables_gets_them_the_second_time(tmp_path: Path) -> None:
    stage, studio = stage_of(tmp_path)
    first = stage.reference()
    second = stage.retry_reference()
    assert first is not second
    assert second is stage.reference()
    assert [one.manner.single for one in studio.asked] == [True, False]
    assert studio.asked[1].feed.folder.is_dir()


def test_slices_follow_the_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of the original are one of a rank; a validation set that every rank reads whole."""
    plan = Layout(2, 1, 8, 4, 2, ("Val/8/8#0",))
    monkeypatch.setattr(module, "layout", lambda reference, distributed: plan)
    stage, studio = stage_of(tmp_path)
    stage.double_reference()
    stage.shard("shard with gradients averaged", averaged=True)
    stage.slice_alone(1)
    record, shard, alone = [one for one in studio.asked if getattr(one, "feed", None) and one.feed.double]
    assert (record.feed.role, record.feed.grow, record.feed.multiple % 2) == ("record", 1, 0)
    assert shard.feed.folder == record.feed.folder == alone.feed.folder
    assert (shard.feed.role, shard.feed.per, shard.feed.whole) == ("shard", (2, 1), ("Val/8/8#0",))
    assert (shard.num_ranks, shard.manner.fed, shard.mode.averaged, shard.mode.high) == (2, True, True, True)
    assert (alone.num_ranks, alone.feed.rank, alone.feed.num_ranks, alone.manner.fed) == (1, 1, 2, False)
    assert (shard.steps, alone.steps) == (5, 1)


def test_a_larger_global_batch_is_made_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "layout", lambda reference, distributed: Layout(1, 1, 8, 8, 2))
    stage, studio = stage_of(tmp_path)
    stage.double_reference()
    assert studio.asked[-1].feed.grow == 2


def test_a_declared_local_batch_norm_is_synchronised(tmp_path: Path) -> None:
    assert stage_of(tmp_path)[0].norms == "own"
    assert stage_of(tmp_path, ("LS116",))[0].norms == "synced"


def test_with_the_same_content(tmp_path: Path) -> None:
    stage, studio = stage_of(tmp_path)
    stage.content_reference()
    stage.content_mirror()
    record, replay = studio.asked
    assert record.feed.content
    assert replay.feed.folder == record.feed.folder
    stage.reference_without_dropout()
    assert studio.asked[-1].mode.no_dropout


@pytest.mark.parametrize(("num_ranks", "mirrored"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4)])
def test_a_power_of_two_ranks_is_mirrored(num_ranks: int, mirrored: int, tmp_path: Path) -> None:
    stage = Stage(Question(TRAIN, settings=Settings(num_ranks)), Studio(tmp_path))  # type: ignore[arg-type]
    assert stage.mirror_ranks == mirrored
    stage.mirror()
    assert stage.studio.asked[-1].num_ranks == mirrored  # type: ignore[attr-defined]
