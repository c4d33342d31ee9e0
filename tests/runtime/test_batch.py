"""The stated batch, the number of ranks and the learning rate become one plan, or a message that says why not."""

import math

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.batch import BatchPlan, lr_factor
from lockstep.runtime.config import BatchConfig, OptimConfig
from lockstep.runtime.data.order import EpochPlan


def plan(num_ranks: int, lr: float = 1e-3, optim: dict[str, object] | None = None, **batch: object) -> BatchPlan:
    return BatchPlan.of(BatchConfig(**batch), OptimConfig(lr=lr, **(optim or {})), num_ranks)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7, 16])
def test_the_global_batch_is_what_is_stated_at_every_n(num_ranks: int) -> None:
    made = plan(num_ranks, global_batch=16)
    assert (made.global_batch, made.accumulation, made.num_ranks) == (16, 1, num_ranks)


@pytest.mark.parametrize(("num_ranks", "accumulation"), [(1, 1), (2, 1), (3, 4)])
def test_a_batch_per_rank_gives_the_global_one(num_ranks: int, accumulation: int) -> None:
    made = plan(num_ranks, per_rank=5, accumulation=accumulation)
    assert made.global_batch == 5 * num_ranks * accumulation
    assert made.accumulation == accumulation


def test_without_a_batch_it_is_sixteen() -> None:
    assert plan(2).global_batch == 16


def test_no_forward_of_a_full_step_is_larger_than_the_micro_batch() -> None:
    refused = 0
    for size in range(1, 40):
        for num_ranks in (1, 2, 3, 5):
            for micro in (1, 2, 3, 7):
                try:
                    made = plan(num_ranks, global_batch=size, micro_batch=micro)
                except UserError:
                    refused += 1
                    continue
                epoch = EpochPlan(size, 0, size, made.accumulation, num_ranks)
                shares = [epoch.share(0, m, r) for m in range(epoch.num_micro(0)) for r in range(num_ranks)]
                assert all(1 <= stop - start <= micro for start, stop in shares), (size, num_ranks, micro)
                assert made.accumulation == math.ceil(size / (num_ranks * micro))
    assert refused < 100


@pytest.mark.parametrize(
    ("num_ranks", "batch", "seen", "advice"),
    [
        (3, {"global_batch": 2}, "batch.global_batch=2 for 3 ranks x 1 micro-step", "lower --nproc"),
        (2, {"global_batch": 7, "accumulation": 4}, "7 for 2 ranks x 4 micro-steps", "batch.accumulation"),
        (4, {"global_batch": 5, "micro_batch": 1}, "5 for 4 ranks x 2 micro-steps", "raise batch.micro_batch"),
    ],
)
def test_too_small_a_batch_is_refused_with_what_to_do(
    num_ranks: int, batch: dict[str, object], seen: str, advice: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan(num_ranks, **batch)
    assert seen in str(caught.value)
    assert advice in str(caught.value)
    assert "at least one sample for each rank in each micro-step" in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "size", "reference", "cap", "factor", "says"),
    [
        ("none", 64, None, 2.0, 1.0, "as stated"),
        ("linear", 64, None, 2.0, 1.0, "as stated"),
        ("linear", 16, 16, 2.0, 1.0, "same as reference"),
        ("none", 64, 16, 2.0, 1.0, "not scaled; the global batch is 4 x the reference 16"),
        ("linear", 24, 16, 2.0, 1.5, "linear rule, reference batch 16"),
        ("linear", 64, 16, 2.0, 2.0, "capped from x 4"),
        ("linear", 64, 16, 8.0, 4.0, "linear rule"),
        ("linear", 8, 16, 2.0, 0.5, "x 0.5"),
        ("linear", 64, 16, 1.0, 1.0, "capped from x 4"),
        ("sqrt", 32, 16, 2.0, math.sqrt(2), "sqrt rule"),
        ("sqrt", 128, 16, 2.0, 2.0, "capped from x 2.83"),
        ("sqrt", 4, 16, 2.0, 0.5, "x 0.5"),
    ],
)
def test_the_learning_rate_follows_its_rule_up_to_the_cap(
    rule: str, size: int, reference: int | None, cap: float, factor: float, says: str
) -> None:
    optim = OptimConfig(lr=1e-3, lr_scaling=rule, lr_cap=cap)  # type: ignore[arg-type]
    found, reason = lr_factor(size, reference, optim)
    assert found == pytest.approx(factor, rel=1e-15)
    assert says in reason
    made = BatchPlan.of(BatchConfig(global_batch=size, reference=reference), optim, 1)
    assert made.lr == pytest.approx(1e-3 * factor, rel=1e-15)
    assert made.lr_factor == found


def test_the_rate_depends_on_the_global_batch_and_not_on_n() -> None:
    made = [plan(n, global_batch=32, reference=16, optim={"lr_scaling": "linear"}) for n in (1, 2, 4)]
    assert len({(one.lr, one.lr_reason) for one in made}) == 1


def test_the_contract_in_one_line() -> None:
    made = plan(2, lr=1e-4, global_batch=16, accumulation=2, reference=16)
    assert made.line(112) == (
        "global batch 16 = 4 per rank x 2 ranks x 2 micro-steps, lr 0.0001 (same as reference), 112 steps an epoch"
    )
    uneven = plan(3, global_batch=16).line(None)
    assert uneven.startswith("global batch 16 = 5 or 6 per rank x 3 ranks x 1 micro-step, lr 0.001 (as stated)")
    assert uneven.endswith("steps as the stream lasts")
    assert " x 1 rank x " in plan(1, global_batch=16).line(1)


def test_the_line_tells_the_shares_that_there_are() -> None:
    for size in range(6, 40):
        made = plan(3, global_batch=size, accumulation=2)
        epoch = EpochPlan(size, 0, size, 2, 3)
        sizes = {b - a for m in range(2) for r in range(3) for a, b in [epoch.share(0, m, r)]}
        told = made.line(1).split(" = ")[1].split(" per rank")[0]
        assert sizes <= {int(part) for part in told.split(" or ")}


def test_the_line_of_targets_says_what_is_about_and_what_varies() -> None:
    made = plan(2, global_targets=4096, reference=2048, micro_targets=700)
    assert made.targets and made.global_batch == 4096
    reason = "not scaled; the global batch is 2 x the reference 2048"
    assert made.line(188, 3) == (
        "global batch 4096 targets = about 2048 per rank x 2 ranks x 1..3 micro-steps, "
        f"lr 0.001 ({reason}), about 188 steps an epoch"
    )
    assert "x 1 rank x 1 micro-step," in plan(1, global_targets=64).line(3, 1)


def test_the_learning_rate_follows_targets_where_targets_are_counted() -> None:
    optim = {"lr_scaling": "sqrt"}
    assert plan(3, 1e-3, optim, global_targets=4096, reference=2048).lr == pytest.approx(1e-3 * math.sqrt(2))
