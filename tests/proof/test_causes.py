"""Causes are tried, and only those that a trial confirms are called confirmed. Takes are made by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.proof import Cause, Difference
from lockstep.proof import causes, mirror, shard
from lockstep.proof.align import Layout
from lockstep.proof.causes import MOST_TRIALS, Hypothesis, explained, local_weights
from lockstep.proof.mirror import Mirrored
from lockstep.proof.question import Question
from lockstep.proof.shard import Sharded
from lockstep.proof.takes import Settings, Take
from lockstep.trace.events import Model
from lockstep.trace.script import Program
from tests.proof.by_hand import Made, take

NAMES = {"0/0": "0:fc.weight", "0/1": "0:fc.bias"}
RIGHT = Made(grads={"0/0": [1.0, 2.0], "0/1": [3.0]}, after={"0/0": [0.9, 0.8], "0/1": [0.7]})


def hypothesis(text: str, trial: Callable[[], bool] | None = None, confirmed: bool | None = None) -> Hypothesis:
    return Hypothesis(Cause(text, "", "", confirmed), trial)


def test_what_a_trial_refutes_is_left_out_and_what_it_confirms_comes_first() -> None:
    tried: list[str] = []

    def trial(name: str, holds: bool) -> Callable[[], bool]:
        return lambda: tried.append(name) is None and holds

    found = explained(
        [
            hypothesis("untried"),
            hypothesis("refuted", trial("refuted", False)),
            hypothesis("confirmed", trial("confirmed", True)),
            hypothesis("later", trial("later", True)),
        ]
    )
    assert [(one.text, one.confirmed) for one in found] == [("confirmed", True), ("untried", None)]
    assert tried == ["refuted", "confirmed"]
    assert explained([]) == ()


def test_only_so_many_trials_are_made() -> None:
    found = explained([hypothesis(str(number), lambda: False) for number in range(MOST_TRIALS + 2)])
    assert [(one.text, one.confirmed) for one in found] == [("4", None), ("5", None)]


class Stage:
    """In place of the one that runs takes: those that a test has made, and the trials that were asked for."""

    def __init__(self, folder: Path, reference: Made = RIGHT, plan: Layout | None = None, **settings: Any) -> None:
        self.folder, self.right, self.plan = folder, reference, plan or Layout(1, 1, 4, 2, 2)
        self.question = Question(Program(Path("train.py")), settings=Settings(**settings))
        self.num_ranks, self.norms = 2, "own"
        self.one = take(folder / "reference", [reference], names=NAMES)
        self.trials: dict[str, dict[str, Any]] = {}
        self.cured: str | None = ""
        self.slices: list[Take] = []

    def with_one_rank(self) -> "Stage":
        self.num_ranks = 1
        return self

    def reference(self) -> Take:
        return self.one

    double_reference = content_reference = reference_without_dropout = reference

    def trial(self, name: str, **changes: Any) -> Take:
        """Right where the trial's name holds what the test calls the cure."""
        self.trials[name] = changes
        good = self.cured is not None and self.cured in name
        made = self.right if good else replace(self.right, grads={"0/0": [1.0, 2.0], "0/1": [4.0]})
        return take(self.folder / name, *[[made]] * self.num_ranks, names=NAMES)

    mirror = shard = trial

    def content_mirror(self) -> Take:
        return self.trial("content")

    def layout(self) -> Layout:
        return self.plan

    def slice_alone(self, rank: int) -> Take:
        return self.slices[rank]


def of_mirror(stage: Stage, *ranks: Made, **more: Any) -> tuple[tuple[Cause, ...], Mirrored]:
    broken = take(stage.folder / "broken", *[[one] for one in ranks], names=NAMES)
    result = mirror.compare(stage.one, broken)
    return causes.of_mirror(stage, broken, result, **more), result  # type: ignore[arg-type]


def of_shard(stage: Stage, *ranks: Made) -> tuple[tuple[Cause, ...], Sharded]:
    broken = take(stage.folder / "broken", *[[one] for one in ranks], names=NAMES)
    result = shard.compare(stage.one, broken)
    return causes.of_shard(stage, broken, result), result  # type: ignore[arg-type]


def scaled(ratio: float) -> Made:
    return replace(RIGHT, grads={key: [ratio * one for one in value] for key, value in RIGHT.grads.items()})


def codes(found: tuple[Cause, ...]) -> list[tuple[str, bool | None]]:
    return [(one.code, one.confirmed) for one in found]


FACTORS = [
    (0.5, Layout(1, 1, 4, 2, 2), "1 / 2 ranks", "multiply the loss by the number of ranks"),
    (2.0, Layout(1, 1, 4, 2, 2), "gradients are summed over the ranks", "divide by the number of ranks once"),
    (4.0, Layout(1, 4, 8, 2, 2), "4 micro-batches", "divide the loss by the number of micro-batches"),
    (3.0, Layout(1, 1, 4, 2, 2), "3 times the reference's", "look for a factor"),
]


@pytest.mark.parametrize(("ratio", "plan", "text", "next_step"), FACTORS)
@pytest.mark.parametrize("cured", ["", None])
def test_a_factor_is_named_and_tried(
    tmp_path: Path, ratio: float, plan: Layout, text: str, next_step: str, cured: str | None
) -> None:
    stage = Stage(tmp_path, plan=plan)
    stage.cured = cured
    found, result = of_mirror(stage, scaled(ratio), scaled(ratio))
    assert result.factor == pytest.approx(ratio)
    assert [changes["factor"] for changes in stage.trials.values()] == [pytest.approx(1 / ratio)]
    if cured is None:
        assert found == ()
    else:
        assert codes(found) == [("LS411", True)]
        assert text in found[0].text
        assert next_step in found[0].next_step


def test_a_factor_on_slices(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    found, _ = of_shard(stage, scaled(0.5), scaled(0.5))
    assert codes(found) == [("LS411", True)]
    assert list(stage.trials) == ["shard with the loss times 2"]


@pytest.mark.parametrize(
    ("broken", "trial", "code"),
    [
        (replace(RIGHT, start={"0/0": [5.0]}), "mirror from the same weights", "LS413"),
        (replace(RIGHT, lr=(0.2,)), "mirror at the same rate", "LS412"),
        (replace(scaled(0.9), outputs={"fc": [9.0]}), "mirror without dropout", "LS414"),
        (replace(scaled(0.9), rows={"0": ("b",)}), "content", "LS409"),
    ],
)
def test_each_kind_of_difference_has_its_trial(tmp_path: Path, broken: Made, trial: str, code: str) -> None:
    stage = Stage(tmp_path, replace(RIGHT, start={"0/0": [1.0]}, outputs={"fc": [1.0]}, rows={"0": ("a",)}))
    whole = replace(broken, start=broken.start or {"0/0": [1.0]}, outputs=broken.outputs or {"fc": [1.0]})
    stage.cured = trial
    found, _ = of_mirror(stage, whole, whole)
    assert codes(found)[0] == (code, True), found
    assert trial in stage.trials


def test_the_reference_s_rates_are_put_in(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    of_mirror(stage, replace(RIGHT, lr=(0.2,)), replace(RIGHT, lr=(0.2,)))
    assert stage.trials["mirror at the same rate"] == {"lr": (((0.1,),),)}


def test_only_the_parameters_differ(tmp_path: Path) -> None:
    changed = replace(RIGHT, after={"0/0": [0.9, 0.8], "0/1": [0.1]})
    found, _ = of_mirror(Stage(tmp_path), changed, changed)
    assert codes(found) == [("", None)]
    assert "the optimizer's settings" in found[0].text


def test_another_number_of_steps(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    longer = take(tmp_path / "longer", [RIGHT, RIGHT], names=NAMES)
    result = mirror.compare(stage.one, longer)
    (found,) = causes.of_mirror(stage, longer, result)  # type: ignore[arg-type]
    assert "another number of steps" in found.text


def test_with_one_rank_the_trials_have_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    of_mirror(stage, scaled(3.0), alone=True)
    assert stage.num_ranks == 1


def test_parameters_of_another_model(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    names = {"0/0": "", "0/1": ""}
    broken = take(tmp_path / "broken", [replace(RIGHT, grads={"0/0": [7.0, 1.0], "0/1": [3.0]})], names=names)
    found = causes.of_mirror(stage, broken, mirror.compare(stage.one, broken))  # type: ignore[arg-type]
    assert codes(found) == [("LS109", None)]


def test_gradients_that_are_not_reduced(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.cured = "averaged"
    ranks = [replace(RIGHT, grads={"0/0": [1.0, 2.0 + rank], "0/1": [3.0]}) for rank in (0, 1)]
    found, result = of_shard(stage, *ranks)
    assert result.missed == ("fc.weight",)
    assert codes(found) == [("LS102", True)]
    assert "fc.weight is not reduced over the ranks (1 other parameters are right)" in found[0].text
    assert stage.trials["shard with gradients averaged"] == {"averaged": True}


def test_local_batch_norm_is_tried_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    layers = Model(model=0, kind="Net", batch_norms=("1",))
    broken = replace(scaled(0.7), more=(layers,))
    found, _ = of_shard(stage, broken, broken)
    assert codes(found) == [("LS116", True)]
    assert stage.trials["shard with synchronised BatchNorm"] == {"norms": "synced"}
    declared = Stage(tmp_path / "declared")
    declared.norms = "synced"
    found, _ = of_shard(declared, broken, broken)
    assert ("LS116", True) not in codes(found)


def own(stage: Stage, *grads: dict[str, list[float]]) -> None:
    """What each rank's slice makes by itself."""
    stage.slices = [
        take(stage.folder / f"slice {rank}", [Made(grads=one)], names=NAMES) for rank, one in enumerate(grads)
    ]


def test_unequal_counts(tmp_path: Path) -> None:
    """Rank 0 has one valid target of four: the truth is a quarter of its mean and three of the other's."""
    truth = Made(grads={"0/0": [4.0, 1.0], "0/1": [7.0]})
    stage = Stage(tmp_path, truth)
    stage.cured = None
    locals_ = {"0/0": [1.0, 4.0], "0/1": [1.0]}, {"0/0": [5.0, 0.0], "0/1": [9.0]}
    own(stage, *locals_)
    mean = Made(grads={"0/0": [3.0, 2.0], "0/1": [5.0]})
    assert local_weights(stage) == pytest.approx((0.25, 0.75))  # type: ignore[arg-type]
    found, _ = of_shard(stage, mean, mean)
    assert codes(found) == [("LS410", True)]
    assert "rank 0 0.25, rank 1 0.75, and they are averaged with 0.5 each" in found[0].text


def test_no_weights_of_the_local_gradients(tmp_path: Path) -> None:
    right = {"0/0": [1.0, 2.0], "0/1": [3.0]}
    stage = Stage(tmp_path)
    own(stage, {"0/0": [1.0, 0.0], "0/1": [0.0]}, {"0/0": [0.0, 1.0], "0/1": [0.0]})
    assert local_weights(stage) is None  # type: ignore[arg-type]  # no mixture of them is the truth
    for number, bad in enumerate(
        (
            {"0/0": [float("nan"), 2.0], "0/1": [3.0]},
            {"0/0": [1.0, 2.0, 3.0], "0/1": [3.0]},
            {"0/0": [1.0, 2.0]},
        )
    ):
        stage.folder = tmp_path / str(number)
        own(stage, right, bad)
        assert local_weights(stage) is None  # type: ignore[arg-type]
    stage.slices[1] = take(tmp_path / "without a step", [], names=NAMES)
    assert local_weights(stage) is None  # type: ignore[arg-type]
    stage.slices[1] = take(tmp_path / "without a rank", names=NAMES)
    assert local_weights(stage) is None  # type: ignore[arg-type]


def test_equal_weights_are_no_cause(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    own(stage, {"0/0": [0.0, 4.0], "0/1": [2.0]}, {"0/0": [2.0, 0.0], "0/1": [4.0]})
    broken = replace(RIGHT, grads={"0/0": [1.0, 2.5], "0/1": [3.0]})
    assert of_shard(stage, broken, broken)[0] == ()


def test_a_program_that_spawns_its_ranks_has_no_slices_of_its_own(tmp_path: Path) -> None:
    assert local_weights(Stage(tmp_path, spawns=True)) is None  # type: ignore[arg-type]


def test_rates_of_every_optimizer(tmp_path: Path) -> None:
    steps = [RIGHT, replace(RIGHT, optimizer=1, lr=(9.0,)), replace(RIGHT, lr=(0.05,))]
    assert causes.rates_of(take(tmp_path / "a", steps)) == (((0.1,), (0.05,)), ((9.0,),))


def test_no_difference_no_cause(tmp_path: Path) -> None:
    broken = take(tmp_path / "broken", [RIGHT])
    result = Mirrored(0, (Difference(0, "gradient"),))
    assert causes.of_mirror(Stage(tmp_path / "b"), broken, result) == ()  # type: ignore[arg-type]
