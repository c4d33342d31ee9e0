from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.proof import mirror
from lockstep.proof.mirror import Mirrored
from lockstep.trace.events import Batch, Collective, Forward
from tests.proof.by_hand import HERE, STREAM, Made, take

NAMES = {"0/0": "0:fc.weight", "0/1": "0:fc.bias"}
FIRST = Made(
    grads={"0/0": [1.0, 2.0], "0/1": [3.0]},
    after={"0/0": [0.9, 0.8], "0/1": [0.7]},
    start={"0/0": [1.0, 1.0], "0/1": [1.0]},
    outputs={"fc": [0.5], "": [0.25]},
    loss=0.5,
    ids=(3, 1),
    rows={"0": ("aa", "bb")},
)
SECOND = replace(FIRST, start={}, after={"0/0": [0.8, 0.6], "0/1": [0.4]})
STEPS = [FIRST, SECOND]


def compared(folder: Path, *ranks: list[Made], reference: list[Made] = STEPS) -> Mirrored:
    one = take(folder / "reference", reference, names=NAMES)
    return mirror.compare(one, take(folder / "mirror", *ranks, names=NAMES))


def kinds(result: Mirrored) -> list[str]:
    return [one.what for one in result.differences]


def test_equal_ranks_are_exact(tmp_path: Path) -> None:
    result = compared(tmp_path, STEPS, STEPS)
    assert result.exact
    assert (result.steps, result.factor, result.talks) == (2, None, False)


def test_the_first_step_that_differs_is_named_with_both_values(tmp_path: Path) -> None:
    wrong = replace(SECOND, grads={"0/0": [1.0, 2.5], "0/1": [3.0]})
    result = compared(tmp_path, STEPS, [FIRST, wrong])
    (one,) = result.differences
    assert (result.steps, one.step, one.rank, one.what, one.name) == (1, 1, 1, "gradient", "fc.weight")
    assert (one.seen, one.wanted) == ("norm 2.69258 (1, 2.5)", "norm 2.23607 (1, 2)")
    assert one.error == pytest.approx(0.5 / 14**0.5)
    assert str(one.place) == f"{HERE}:60"


def test_a_difference_comes_in_the_order_of_a_step(tmp_path: Path) -> None:
    wrong = replace(
        FIRST,
        start={"0/0": [1.0, 1.5], "0/1": [1.0]},
        outputs={"fc": [0.75], "": [0.35]},
        loss=0.75,
        grads={"0/0": [2.0, 4.0], "0/1": [6.0]},
        lr=(0.2,),
    )
    result = compared(tmp_path, [wrong], [wrong])
    assert kinds(result) == ["start", "output", "loss", "gradient", "gradient", "lr"]
    start, output, loss, gradient, _, rate = result.differences
    assert (output.name, output.seen, output.wanted) == ("fc", "0.75", "0.5")
    assert (start.name, gradient.name) == ("fc.weight", "fc.bias")
    assert (loss.seen, loss.wanted, loss.error) == ("0.75", "0.5", 0.5)
    assert (rate.seen, rate.wanted) == ("0.2", "0.1")


def test_what_one_rank_did_to_its_batch_comes_first_though_all_show_it(tmp_path: Path) -> None:
    """The gradients are averaged, so rank 0 differs too; its batch and outputs do not."""
    spoiled = {"0/0": [1.5, 2.0], "0/1": [3.0]}
    other = replace(FIRST, grads=spoiled, rows={"0": ("aa", "cc")}, outputs={"fc": [0.9]})
    first = compared(tmp_path, [replace(FIRST, grads=spoiled)], [other]).differences[0]
    assert (first.what, first.rank, first.name) == ("batch", 1, "0")
    assert first.seen == "sample 1, element 0 of batch 0: another content"
    assert str(first.place) == f"{HERE}:30"


def test_only_the_model_s_input_differs(tmp_path: Path) -> None:
    """No loader tells its batches, but the forward tells what it was given."""

    def made(inputs: str, grads: float) -> Made:
        forward = Forward(model=0, via="wrapper", inputs=inputs, at=f"{HERE}:41")
        return Made(grads={"0/0": [grads]}, more=(forward,))

    result = compared(tmp_path, [made("bb", 2.0)], reference=[made("aa", 1.0)])
    assert kinds(result) == ["input", "gradient"]
    assert str(result.differences[0].place) == f"{HERE}:41"


def test_a_factor_and_collectives_make_it_depend_on_the_share(tmp_path: Path) -> None:
    half = replace(FIRST, grads={"0/0": [0.5, 1.0], "0/1": [1.5]})
    result = compared(tmp_path / "a", [half], [half])
    assert result.factor == pytest.approx(0.5)
    assert result.share_dependent
    reduced = Collective(number=0, op="all_reduce", ranks=(0, 1))
    talking = replace(FIRST, grads={"0/0": [0.5, 7.0], "0/1": [1.5]}, more=(reduced,))
    result = compared(tmp_path / "b", [talking], [talking])
    assert (result.factor, result.talks, result.share_dependent) == (None, True, True)
    barrier = replace(talking, more=(replace(reduced, op="barrier"),))
    assert not compared(tmp_path / "c", [barrier], [barrier]).share_dependent


@pytest.mark.parametrize(
    "early", [{"rows": {"0": ("xx", "bb")}}, {"outputs": {"fc": [9.0]}}, {"start": {"0/0": [7.0]}}]
)
def test_what_differs_before_the_loss_is_no_share(tmp_path: Path, early: dict[str, object]) -> None:
    half = replace(FIRST, grads={"0/0": [0.5, 1.0], "0/1": [1.5]}, **early)  # type: ignore[arg-type]
    result = compared(tmp_path, [half], [half])
    assert result.factor is not None
    assert not result.share_dependent


def test_only_the_parameters_after_the_step_differ(tmp_path: Path) -> None:
    result = compared(tmp_path, [replace(FIRST, after={"0/0": [0.9, 0.8], "0/1": [0.6]})])
    (one,) = result.differences
    assert (one.what, one.name, one.seen, one.wanted) == ("parameter", "fc.bias", "0.6", "0.7")


def test_a_missing_gradient(tmp_path: Path) -> None:
    result = compared(tmp_path, [replace(FIRST, grads={"0/0": [1.0, 2.0]})])
    (one,) = result.differences
    assert (one.name, one.seen, one.wanted) == ("fc.bias", "no gradient", "3")
    assert one.error == pytest.approx(3 / 14**0.5)


def test_a_gradient_that_the_reference_does_not_have(tmp_path: Path) -> None:
    reference = [replace(FIRST, grads={"0/0": [1.0, 2.0]})]
    (one,) = compared(tmp_path, [FIRST], reference=reference).differences
    assert (one.name, one.seen, one.wanted) == ("fc.bias", "3", "no gradient")


def test_gradients_that_are_no_numbers(tmp_path: Path) -> None:
    result = compared(tmp_path, [replace(FIRST, grads={"0/0": [float("nan"), 2.0], "0/1": [3.0]})])
    (one,) = result.differences
    assert (one.name, one.error, result.factor) == ("fc.weight", float("inf"), None)


def test_gradients_that_are_all_zero(tmp_path: Path) -> None:
    result = compared(tmp_path, [replace(FIRST, grads={"0/0": [0.0, 0.0], "0/1": [0.0]})])
    assert result.factor is None
    assert kinds(result) == ["gradient", "gradient"]


def test_another_order_of_the_reference_s_batches_is_another_batch(tmp_path: Path) -> None:
    """Of a batch whose content is equal the indices are not compared: the feed has given them."""
    assert compared(tmp_path, [replace(FIRST, ids=(5, 6)), SECOND]).exact


def test_a_rank_without_a_step(tmp_path: Path) -> None:
    result = compared(tmp_path, STEPS, [])
    assert not result.exact
    assert (result.differences[0].what, result.differences[0].rank) == ("step", 1)


def test_a_training_that_ends_early(tmp_path: Path) -> None:
    result = compared(tmp_path, STEPS, [FIRST])
    (one,) = result.differences
    assert (result.steps, one.what, one.step, one.rank) == (1, "step", 1, 1)
    assert (one.seen, one.wanted) == ("the end, after 1 steps", "a further step")
    assert not result.share_dependent


def test_a_training_that_goes_on(tmp_path: Path) -> None:
    (one,) = compared(tmp_path, STEPS, STEPS, reference=[FIRST]).differences
    assert (one.step, one.rank, one.seen, one.wanted) == (1, 0, "a further step", "the end, after 1 steps")


def test_a_run_that_was_stopped_has_no_end_of_its_own(tmp_path: Path) -> None:
    one = take(tmp_path / "reference", STEPS, how="enough")
    assert mirror.compare(one, take(tmp_path / "a", [FIRST], how="enough")).exact
    assert mirror.compare(one, take(tmp_path / "b", [*STEPS, SECOND], how="enough")).exact


def test_nothing_was_compared(tmp_path: Path) -> None:
    result = compared(tmp_path, [], reference=[])
    assert not result.exact
    assert not result.differences
    assert not compared(tmp_path / "none", reference=STEPS).exact


def test_outputs_of_yes_and_no(tmp_path: Path) -> None:
    wrong = replace(FIRST, outputs={"fc": [True]}, grads={"0/0": [9.0]})
    result = compared(tmp_path, [wrong], reference=[replace(FIRST, outputs={"fc": [False]})])
    assert result.differences[0].what == "output"


def test_only_the_first_three_gradients_are_told(tmp_path: Path) -> None:
    grads = {f"0/{key}": [float(key)] for key in range(1, 8)}
    wrong = {key: [value[0] + 1] for key, value in grads.items()}
    result = compared(tmp_path, [Made(grads=wrong)], reference=[Made(grads=grads)])
    assert kinds(result) == ["gradient"] * 3


def test_a_second_optimizer_is_compared_too(tmp_path: Path) -> None:
    critic = replace(FIRST, optimizer=1, start={})
    wrong = replace(critic, grads={"0/0": [8.0, 8.0], "0/1": [8.0]})
    result = compared(tmp_path, [FIRST, wrong], reference=[FIRST, critic])
    assert (result.steps, kinds(result)[0]) == (1, "gradient")


def test_content_of_batches_without_gradients_is_no_difference(tmp_path: Path) -> None:
    def made(content: str, grads: float) -> Made:
        seen = Batch(loader=1, stream=STREAM, number=0, batch=0, rows={"0": (content,)}, grad=False)
        return Made(grads={"0/0": [grads]}, more=(seen,))

    assert kinds(compared(tmp_path, [made("b", 2.0)], reference=[made("a", 1.0)])) == ["gradient"]


def test_bits_that_halving_loses_near_the_smallest_numbers_are_no_difference(tmp_path: Path) -> None:
    def made(tiny: float) -> list[Made]:
        return [replace(FIRST, grads={"0/0": [tiny, 2.0], "0/1": [3.0]}, after={"0/0": [tiny, 0.8], "0/1": [0.7]})]

    assert compared(tmp_path / "a", made(7e-45), reference=made(5.6e-45)).exact
    assert kinds(compared(tmp_path / "b", made(1e-20), reference=made(2e-20))) == ["gradient"]
