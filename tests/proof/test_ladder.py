"""How each rung ends, from takes made by hand. Whole programs are in test_programs.py and tests/test_verify.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.finding import Finding, Severity
from lockstep.core.outcome import Exit
from lockstep.core.proof import Rung, Status
from lockstep.launch.local import Outcome
from lockstep.launch.verdict import Verdict
from lockstep.proof import ladder, mirror
from lockstep.proof.align import Layout, layout
from lockstep.proof.question import Question
from lockstep.proof.takes import Settings, Take
from lockstep.trace.events import File, Forward, Loader, PassEnd, Scaler
from lockstep.trace.script import Program
from lockstep.trace.trace import Trace
from tests.proof.by_hand import STREAM, Made, take

NAMES = {"0/0": "0:fc.weight"}
WHOLE = (0, 1, 2, 3)


def step(ids: tuple[int, ...] = WHOLE, grad: float = 1.0, number: int = 0, **more: Any) -> Made:
    rows = {"0": tuple(f"row {one}" for one in ids)}
    return Made(grads={"0/0": [grad]}, after={"0/0": [0.9 - number]}, ids=ids, rows=rows, loss=0.5, **more)


def cut(reason: str, made: Take, problem: str) -> Take:
    return replace(made, outcome=Outcome(Verdict("", Exit.FAILED), (), (), reason), problem=problem, at="train.py:3")


class Stage:
    """Takes by the name of their method; what a test has not made is a right one."""

    def __init__(self, folder: Path, accept: tuple[str, ...] = (), all_rungs: bool = False, **made: Take) -> None:
        self.question = Question(Program(Path("train.py")), None, Settings(steps=1), accept, all_rungs)
        self.num_ranks, self.needs_variables, self.norms = 2, False, "own"
        self.folder, self.made = folder, made
        self.plan: Layout | None = None

    def _take(self, name: str, *ranks: list[Made]) -> Take:
        if name not in self.made:
            self.made[name] = take(self.folder / name, *ranks, names=NAMES)
        return self.made[name]

    def reference(self) -> Take:
        return self._take("reference", [step()])

    def retry_reference(self) -> Take:
        self.needs_variables = True
        return self._take("retried", [step()])

    def double_reference(self) -> Take:
        return self._take("reference in float64", [step()])

    def alone(self) -> Take:
        return self._take("alone", [step()])

    def plain(self) -> Take:
        ended = (PassEnd(loader=0, stream=STREAM, number=0, batches=1),)
        ranks = ([replace(step(share), more=ended)] for share in (WHOLE[:2], WHOLE[2:]))
        return self._take("plain", *ranks)

    def mirror(self, name: str = "mirror", **changes: Any) -> Take:
        return self._take(name, [step()], [step()])

    def shard(self, name: str = "shard", **changes: Any) -> Take:
        return self._take(name, [step(WHOLE[:2])], [step(WHOLE[2:])])

    def slice_alone(self, rank: int) -> Take:
        return self._take(f"slice {rank}", [step()])

    def with_one_rank(self) -> "Stage":
        return self

    def layout(self) -> Layout:
        return self.plan or layout(self.reference().trace, self.plain().trace)


@pytest.fixture(autouse=True)
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rules say of such short traces is none of the ladder's."""
    monkeypatch.setattr(ladder, "judge", lambda trace, **more: ())


@pytest.fixture(autouse=True)
def no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault falls into real processes only: tests/proof/test_fault.py."""
    monkeypatch.setattr(ladder, "fault", lambda stage: None)


def climbed(stage: Stage) -> dict[str, Rung]:
    return {rung.name: rung for rung in ladder.climb(stage)}  # type: ignore[arg-type]


def statuses(stage: Stage) -> dict[str, str]:
    return {name: str(rung.status) for name, rung in climbed(stage).items()}


RUNGS = ["one process", "distributed path", "2 processes", "partition", "mirror", "shard"]


def test_a_right_program_passes_every_rung(tmp_path: Path) -> None:
    assert statuses(Stage(tmp_path)) == dict.fromkeys(RUNGS, "PASS")


def test_the_ladder_ends_at_the_first_broken_rung_unless_all_are_asked_for(tmp_path: Path) -> None:
    wrong = [step(number=1)]
    for all_rungs, last in ((False, "mirror"), (True, "shard")):
        folder = tmp_path / str(all_rungs)
        made = {"mirror": take(folder / "wrong", wrong, wrong, names=NAMES)}
        found = climbed(Stage(folder, all_rungs=all_rungs, **made))
        assert list(found)[-1] == last
        assert found["mirror"].status is Status.FAIL
        assert found["mirror"].differences[0].name == "fc.weight"
        assert "first at step 0" in found["mirror"].said


def test_what_does_not_run_ends_it_in_any_case(tmp_path: Path) -> None:
    broken = replace(
        take(tmp_path / "alone", []), problem="rank 0 raised KeyError: 1", at="train.py:9", output=("a\nb\n",)
    )
    found = climbed(Stage(tmp_path, all_rungs=True, alone=broken))
    assert list(found) == ["one process", "distributed path"]
    rung = found["distributed path"]
    assert rung.status is Status.ERROR
    assert rung.said == "rank 0 raised KeyError: 1. It said last: b"
    assert "(at train.py:9)" in rung.causes[0].text


@pytest.mark.parametrize(
    ("reason", "words"), [("time", "longer --timeout"), ("stuck", "waits for"), ("disk", "write less")]
)
def test_what_was_ended_says_what_to_do(tmp_path: Path, reason: str, words: str) -> None:
    made = cut(reason, take(tmp_path / "reference", []), "it did not end")
    (rung,) = climbed(Stage(tmp_path, reference=made)).values()
    assert rung.status is Status.ERROR
    assert words in rung.causes[0].next_step


def test_a_reference_that_made_its_steps_before_its_time_was_over_is_enough(tmp_path: Path) -> None:
    made = cut("time", take(tmp_path / "reference", [step()], names=NAMES, how="enough"), "it did not end in time")
    assert statuses(Stage(tmp_path, reference=made))["one process"] == "PASS"


def test_no_training_is_not_judged_and_nothing_follows(tmp_path: Path) -> None:
    assert statuses(Stage(tmp_path, reference=take(tmp_path / "reference", []))) == {"one process": "ABSTAIN"}
    assert statuses(Stage(tmp_path / "b", reference=take(tmp_path / "none"))) == {"one process": "ABSTAIN"}


def test_a_program_that_needs_torchruns_variables(tmp_path: Path) -> None:
    missing = replace(take(tmp_path / "reference", []), problem="rank 0 raised KeyError: 'WORLD_SIZE'")
    stage = Stage(tmp_path, reference=missing)
    found = climbed(replace_reference(stage))
    assert "torchrun's variables" in found["one process"].said
    assert "already" in found["distributed path"].said


def replace_reference(stage: Stage) -> Stage:
    """After the second try it is the reference."""
    retry = stage.retry_reference

    def retried() -> Take:
        stage.made["reference"] = retry()
        return stage.made["reference"]

    stage.retry_reference = retried  # type: ignore[method-assign]
    return stage


def test_ranks_that_are_cut_have_shown_their_steps(tmp_path: Path) -> None:
    made = cut("time", take(tmp_path / "p", [step(WHOLE[:2])], [step(WHOLE[2:])]), "it did not end in time")
    rung = climbed(Stage(tmp_path, plain=made))["2 processes"]
    assert rung.status is Status.PASS
    assert "was ended after 60 s" in rung.said


@pytest.mark.parametrize("ranks", [0, 2])
def test_ranks_that_are_cut_before_a_step_have_shown_nothing(tmp_path: Path, ranks: int) -> None:
    made = cut("time", take(tmp_path / "plain", *[[] for _ in range(ranks)]), "it did not end in time")
    rung = climbed(Stage(tmp_path, plain=made))["2 processes"]
    assert (rung.status, rung.said) == (Status.ERROR, "it did not end in time.")


def test_a_larger_global_batch_is_a_deviation(tmp_path: Path) -> None:
    def stage(folder: Path, *accept: str) -> Stage:
        return Stage(folder, accept, plain=take(folder / "plain", [step()], [step((4, 5, 6, 7))]))

    rung = climbed(stage(tmp_path / "a"))["2 processes"]
    assert rung.status is Status.FAIL
    assert [one.code for one in rung.findings] == ["LS408"]
    assert "takes 8 samples over 2 ranks, in the original 4" in rung.said
    accepted = climbed(stage(tmp_path / "b", "LS408"))["2 processes"]
    assert accepted.status is Status.PASS
    assert [one.code for one in accepted.findings] == ["LS408"]


def test_more_micro_batches_are_proven_by_slices(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.plan = Layout(1, 2, 4, 1, 2)
    found = climbed(stage)
    assert (found["mirror"].status, found["mirror"].covered) == (Status.ABSTAIN, True)
    assert "1 in the original, 2 on a rank" in found["mirror"].said
    assert found["shard"].status is Status.PASS


def test_declared_rates_and_batches_are_left_to_the_slices(tmp_path: Path) -> None:
    faster = [step(lr=(0.2,))]
    longer = [step(), step(number=1)]
    for accept, ranks in (("LS412", faster), ("LS408", longer)):
        folder = tmp_path / accept
        found = climbed(
            Stage(
                folder,
                (accept,),
                mirror=take(folder / "m", ranks, ranks, names=NAMES),
                alone=take(folder / "a", ranks, names=NAMES),
            )
        )
        for name in ("distributed path", "mirror"):
            assert (found[name].status, found[name].covered) == (Status.ABSTAIN, True)
    undeclared = climbed(Stage(tmp_path / "u", mirror=take(tmp_path / "m", faster, faster, names=NAMES)))
    assert undeclared["mirror"].status is Status.FAIL
    assert undeclared["mirror"].differences[0].what == "lr"


def test_arithmetic_of_shares_is_left_to_the_slices_if_they_hold(tmp_path: Path) -> None:
    half = [step(grad=0.5)]
    made = take(tmp_path / "m", half, half, names=NAMES)
    rung = climbed(Stage(tmp_path, mirror=made))["mirror"]
    assert (rung.status, rung.covered) == (Status.ABSTAIN, True)
    assert "depends on the share" in rung.said
    wrong = take(tmp_path / "s", half, half, names=NAMES)
    rung = climbed(Stage(tmp_path / "b", mirror=made, shard=wrong))["mirror"]
    assert (rung.status, rung.covered) == (Status.FAIL, False)


def test_slices_that_differ(tmp_path: Path) -> None:
    wrong = take(tmp_path / "s", [step(WHOLE[:2], grad=1.5)], [step(WHOLE[2:], grad=1.5)], names=NAMES)
    rung = climbed(Stage(tmp_path, shard=wrong))["shard"]
    assert rung.status is Status.FAIL
    assert "relative error 0.5 of the gradient" in rung.said


@pytest.mark.parametrize("which", ["reference in float64", "shard"])
def test_what_does_not_run_in_float64_is_not_judged(tmp_path: Path, which: str) -> None:
    broken = replace(take(tmp_path / "broken", []), problem="rank 0 raised RuntimeError: no double")
    rung = climbed(Stage(tmp_path, **{which: broken}))["shard"]
    assert (rung.status, rung.covered) == (Status.ABSTAIN, False)
    assert "no double" in rung.said


def without_loader(grad: float, inputs: str) -> Made:
    forward = Forward(model=0, via="wrapper", inputs=inputs)
    return Made(grads={"0/0": [grad]}, more=(forward,))


def test_batches_of_no_loader_are_not_judged(tmp_path: Path) -> None:
    one = [without_loader(1.0, "a")]
    other = take(tmp_path / "m", [without_loader(2.0, "b")], [without_loader(3.0, "c")], names=NAMES)
    made = {name: take(tmp_path / name, one, names=NAMES) for name in ("reference", "alone")}
    plain = take(tmp_path / "p", one, one, names=NAMES)
    found = climbed(Stage(tmp_path, mirror=other, plain=plain, **made))
    assert {name: str(found[name].status) for name in ("partition", "mirror", "shard")} == dict.fromkeys(
        ("partition", "mirror", "shard"), "ABSTAIN"
    )
    assert not any(rung.covered for rung in found.values())


def test_mixed_precision_has_a_rung_where_it_is_used(tmp_path: Path) -> None:
    events = (Forward(model=0, via="wrapper", autocast="bfloat16"), Scaler(scale=2.0))
    low = [step(WHOLE[:2], more=events)]
    plain = take(tmp_path / "p", low, [step(WHOLE[2:], more=events)], names=NAMES)
    rung = climbed(Stage(tmp_path, plain=plain))["mixed precision"]
    assert rung.status is Status.PASS
    assert "bfloat16" in rung.said


def test_a_trace_of_nothing_is_judged_by_no_rule(tmp_path: Path) -> None:
    stage = Stage(tmp_path, plain=replace(take(tmp_path / "p"), trace=Trace(())))
    assert ladder.judged(stage) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [2, 4])
def test_a_schedule_as_long_as_the_loader_of_one_rank(batches: int, tmp_path: Path) -> None:
    def made(name: str, length: int, lr: float) -> Any:
        loader = Loader(loader=0, stream="Data/8/8#0", batches=length)
        return take(tmp_path / name, [step(lr=(lr,), more=(loader,))])

    reference, alone = made("a", 2, 0.1), made("b", batches, 0.2)
    result = mirror.compare(reference, alone)
    assert [one.what for one in result.differences] == ["lr"]
    assert ladder._other_schedule(result, reference, alone) is (batches != 2)


def finding(code: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(code, severity, "seen.", "must", "next", ())


def test_ranks_that_nothing_joins_are_no_larger_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = take(tmp_path / "a", [step()], [step()])
    monkeypatch.setattr(ladder, "judge", lambda trace, **more: (finding("LS100"),))
    assert [one.code for one in ladder.judged(Stage(tmp_path, plain=alone))] == ["LS100"]  # type: ignore[arg-type]


def test_who_writes_on_several_nodes_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = take(tmp_path / "a", [step(more=(File(op="save", path="/a.pt"),))], [step()])
    stage = Stage(tmp_path, plain=saves)
    stage.plan = Layout(1, 1, 8, 4, 2)
    nodes = take(tmp_path / "b", [step()], [step()])
    monkeypatch.setattr(stage, "nodes", lambda: nodes, raising=False)
    found = {id(saves.trace): (), id(nodes.trace): (finding("LS303"), finding("LS301"))}
    monkeypatch.setattr(ladder, "judge", lambda trace, **more: found[id(trace)])
    (one,) = ladder.judged(stage)  # type: ignore[arg-type]
    assert (one.code, one.severity, one.seen) == ("LS303", Severity.NOTE, "on several nodes, seen.")


@pytest.mark.parametrize("anew", [True, False])
def test_data_that_every_process_makes_at_random(anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    monkeypatch.setattr(stage, "again", stage.plain, raising=False)
    monkeypatch.setattr(ladder, "judged", lambda stage: (finding("LS202"), finding("LS205", Severity.NOTE)))
    monkeypatch.setattr(ladder, "made_anew", lambda trace, again: anew)
    rung = ladder._partition(stage)  # type: ignore[arg-type]
    assert rung.status is (Status.ABSTAIN if anew else Status.FAIL)
    assert [one.code for one in rung.findings] == (["LS205"] if anew else ["LS202", "LS205"])


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        ("rank 0 raised AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'", "torch.cuda"),
        ("rank 0 raised KeyError: 'x'", "by hand"),
    ],
)
def test_a_program_that_needs_a_gpu_is_told_so(problem: str, wanted: str, tmp_path: Path) -> None:
    rung = ladder._did_not_run("one process", take(tmp_path / "a", [step()], problem=problem))
    assert rung.status is Status.ERROR
    assert wanted in rung.causes[0].next_step


def test_a_run_that_broke_off_is_told_beside_what_the_rules_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = take(tmp_path / "a", [step()], [step()], problem="rank 0 raised KeyError: 'x'")
    monkeypatch.setattr(ladder, "judged", lambda stage: (finding("LS101"),))
    rung = ladder._two_processes(Stage(tmp_path, plain=plain))  # type: ignore[arg-type]
    assert rung.status is Status.FAIL
    assert rung.said.endswith("seen. The run broke off: rank 0 raised KeyError: 'x'")
