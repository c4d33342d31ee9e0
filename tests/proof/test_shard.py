from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.proof import shard
from lockstep.proof.shard import Sharded
from lockstep.proof.takes import Take
from lockstep.trace.events import Step
from lockstep.trace.trace import RankTrace
from tests.proof.by_hand import HERE, Made, take

NAMES = {"0/0": "0:fc.weight", "0/1": "0:fc.bias"}
FIRST = Made(
    grads={"0/0": [1.0, 2.0], "0/1": [3.0]},
    after={"0/0": [0.9, 0.8], "0/1": [0.7]},
    start={"0/0": [1.0, 1.0], "0/1": [1.0]},
    outputs={"fc": [[1.0], [2.0], [3.0], [4.0]]},
    loss=0.5,
    ids=(3, 1, 0, 2),
    rows={"0": ("a", "b", "c", "d")},
)
LATER = replace(FIRST, start={})


def half(rank: int, one: Made = FIRST, **changes: object) -> Made:
    """What a rank makes of its half."""
    rows = slice(2 * rank, 2 * rank + 2)
    parts = {
        "outputs": {name: value[rows] for name, value in one.outputs.items()},
        "ids": (one.ids or ())[rows],
        "rows": {path: value[rows] for path, value in one.rows.items()},
    }
    return replace(one, **{**parts, **changes})


def compared(folder: Path, *ranks: list[Made], reference: list[Made] | None = None) -> Sharded:
    one = take(folder / "reference", reference or [FIRST, LATER], names=NAMES)
    return shard.compare(one, take(folder / "shard", *ranks, names=NAMES))


def kinds(result: Sharded) -> list[str]:
    return [one.what for one in result.differences]


def test_slices_of_a_right_program(tmp_path: Path) -> None:
    rounding = {"0/0": [1.0, 2.0 + 4e-16], "0/1": [3.0]}
    result = compared(tmp_path, *([half(rank, grads=rounding), half(rank, LATER)] for rank in (0, 1)))
    assert result.passed
    assert result.steps == 2
    assert 0 < result.error < 1e-15
    assert result.missed == ()
    assert result.exact == ()


def test_a_small_difference_is_a_bug(tmp_path: Path) -> None:
    wrong = {"0/0": [1.0, 2.0 + 1e-6], "0/1": [3.0]}
    result = compared(tmp_path, *([half(rank), half(rank, LATER, grads=wrong)] for rank in (0, 1)))
    assert (result.passed, result.steps, kinds(result)) == (False, 1, ["gradient"])
    (one,) = result.differences
    assert (one.step, one.name, str(one.place)) == (1, "fc.weight", f"{HERE}:60")
    assert result.error == one.error == pytest.approx(1e-6 / 14**0.5)
    assert result.exact == ("fc.bias",)


def test_the_output_of_all_ranks_together_is_what_is_compared(tmp_path: Path) -> None:
    wrong = {"0/0": [9.0, 9.0], "0/1": [9.0]}
    ranks = [[half(0, grads=wrong)], [half(1, grads=wrong, outputs={"fc": [[3.0], [5.0]]})]]
    result = compared(tmp_path, *ranks)
    first = result.differences[0]
    assert (first.what, first.name, first.rank) == ("output", "fc", None)
    assert (first.seen, first.wanted) == ("norm 6.245 (1, 2, 3, ...)", "norm 5.47723 (1, 2, 3, ...)")
    assert kinds(result) == ["output", "gradient", "gradient"]


def test_another_sample_content(tmp_path: Path) -> None:
    wrong = {"0/0": [9.0, 9.0], "0/1": [9.0]}
    ranks = [[half(0, grads=wrong)], [half(1, grads=wrong, rows={"0": ("c", "x")})]]
    first = compared(tmp_path, *ranks).differences[0]
    assert (first.what, first.seen) == ("batch", "sample 2, element 0: another content")


def test_the_mean_of_the_losses(tmp_path: Path) -> None:
    wrong = {"0/0": [9.0, 9.0], "0/1": [9.0]}
    result = compared(tmp_path, [half(0, grads=wrong, loss=0.5)], [half(1, grads=wrong, loss=0.7)])
    first = result.differences[0]
    assert (first.what, first.seen, first.wanted) == ("loss", "0.6 (mean over the ranks)", "0.5")
    assert first.error == pytest.approx(0.2)


def test_a_gradient_that_is_no_number_does_not_pass(tmp_path: Path) -> None:
    bad = {"0/0": [float("nan"), 2.0], "0/1": [3.0]}
    result = compared(tmp_path, *([half(rank, grads=bad)] for rank in (0, 1)))
    assert (result.passed, result.error, result.factor) == (False, float("inf"), None)
    assert result.differences[0].name == "fc.weight"


def test_a_factor(tmp_path: Path) -> None:
    result = compared(tmp_path, *([half(rank, grads={"0/0": [0.5, 1.0], "0/1": [1.5]})] for rank in (0, 1)))
    assert result.factor == pytest.approx(0.5)
    assert result.missed == ()


def test_gradients_that_are_not_reduced(tmp_path: Path) -> None:
    result = compared(tmp_path, *([half(rank, grads={"0/0": [1.0, 2.0 + rank], "0/1": [3.0]})] for rank in (0, 1)))
    assert (result.missed, result.exact) == (("fc.weight",), ("fc.bias",))
    assert result.differences[0].rank == 1  # the rank that is farthest off


def test_another_rate_and_another_start(tmp_path: Path) -> None:
    start = {"0/0": [1.0, 1.5], "0/1": [1.0]}
    result = compared(tmp_path, *([half(rank, lr=(0.2,), start=start)] for rank in (0, 1)))
    assert kinds(result) == ["start", "lr"]
    rounded = compared(tmp_path / "b", *([half(rank, lr=(0.1 + 1e-16,)), half(rank, LATER)] for rank in (0, 1)))
    assert rounded.passed


def test_parameters_after_the_step(tmp_path: Path) -> None:
    result = compared(tmp_path, [half(0)], [half(1, after={"0/0": [0.9, 0.7], "0/1": [0.7]})])
    (one,) = result.differences
    assert (one.what, one.name, one.rank) == ("parameter", "fc.weight", 1)


def test_a_parameter_whose_gradient_is_rounding_may_go_anywhere(tmp_path: Path) -> None:
    """Adam makes a full step of 1e-17 in a bias before BatchNorm."""
    reference = [replace(FIRST, grads={"0/0": [1.0, 2.0], "0/1": [1e-17]})]
    ranks = [
        [half(rank, grads={"0/0": [1.0, 2.0], "0/1": [-3e-17]}, after={"0/0": [0.9, 0.8], "0/1": [5.0]})]
        for rank in (0, 1)
    ]
    assert compared(tmp_path, *ranks, reference=reference).passed


def test_only_steps_that_all_ranks_made_are_compared(tmp_path: Path) -> None:
    assert compared(tmp_path, [half(0), half(0, LATER)], [half(1)]).steps == 1
    result = compared(tmp_path / "none", [half(0)], [])
    assert not result.passed
    assert kinds(result) == ["step"]


def test_no_ranks_at_all(tmp_path: Path) -> None:
    assert kinds(compared(tmp_path)) == ["step"]


def _beside(error: float) -> dict[str, list[float]]:
    return {"0/0": [1.0, 2.0 + error * 14**0.5], "0/1": [3.0]}


def erring(errors: list[float]) -> list[list[Made]]:
    """Both ranks with these errors, step by step."""
    steps = [(FIRST if number == 0 else LATER, _beside(error)) for number, error in enumerate(errors)]
    return [[half(rank, one, grads=grads) for one, grads in steps] for rank in (0, 1)]


def test_rounding_that_grows_from_step_to_step_is_no_bug(tmp_path: Path) -> None:
    errors = [1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 0.5]
    result = compared(tmp_path, *erring(errors), reference=[FIRST, *[LATER] * 5])
    assert (result.passed, result.steps) == (True, 5)  # behind 1e-6 nothing can be told
    assert result.error == pytest.approx(1e-6)


def test_an_error_that_jumps_is_a_bug_also_where_rounding_has_grown(tmp_path: Path) -> None:
    errors = [1e-14, 1e-12, 1e-10, 1e-6]
    result = compared(tmp_path, *erring(errors), reference=[FIRST, *[LATER] * 3])
    assert (result.passed, result.steps, kinds(result)) == (False, 3, ["gradient"])


def unkept(made: Take, number: int) -> Take:
    """The file for values was full from this step on."""

    def lost(rank: RankTrace) -> RankTrace:
        events = [
            replace(event, grad_tensors={**event.grad_tensors, "0/0": -1})
            if isinstance(event, Step) and event.step >= number
            else event
            for event in rank.events
        ]
        return replace(rank, events=tuple(events))

    return replace(made, trace=replace(made.trace, ranks=tuple(map(lost, made.trace.ranks))))


@pytest.mark.parametrize("number", [0, 1])
def test_values_that_were_not_kept_are_no_missing_gradients(tmp_path: Path, number: int) -> None:
    one = take(tmp_path / "reference", [FIRST, LATER], names=NAMES)
    ranks = take(tmp_path / "shard", [half(0), half(0, LATER)], [half(1), half(1, LATER)], names=NAMES)
    for sides in ((unkept(one, number), ranks), (one, unkept(ranks, number))):
        result = shard.compare(*sides)
        assert (result.steps, result.kept, result.differences) == (number, number > 0, ())
