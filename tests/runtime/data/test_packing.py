"""Steps counted in targets, as properties over many sizes, limits and numbers of ranks."""

import itertools
import random

import numpy as np
import pytest

from lockstep.runtime.data.packing import PackedPlan, cut, deal, micro_steps, num_groups, step_starts


def sizes_of(seed: int, length: int, largest: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randint(1, largest) for _ in range(length)]


def plans() -> list[tuple[PackedPlan, int]]:
    """Plans that `Sizing.check` lets through, with their largest size."""
    found = []
    for seed, length, largest, ranks in itertools.product(range(3), (1, 2, 7, 120), (1, 9, 30), (1, 2, 3, 5)):
        sizes = np.array(sizes_of(seed, length, largest), dtype=np.int64)
        for global_targets, micro in itertools.product((ranks * largest, 150 + 7 * seed), (None, largest, 2 * largest)):
            if global_targets >= ranks * largest:
                found.append((PackedPlan(sizes, 0, global_targets, micro, ranks), largest))
    return found


PLANS = plans()


def shares(plan: PackedPlan, step: int) -> list[list[list[int]]]:
    """Positions by micro-step and rank."""
    return [
        [plan.positions(step, micro, rank).tolist() for rank in range(plan.num_ranks)]
        for micro in range(plan.num_micro(step))
    ]


def padded(plan: PackedPlan, share: list[int]) -> int:
    return int(max(plan.sizes[position] for position in share)) * len(share)


def test_there_are_plans_of_every_kind() -> None:
    assert len(PLANS) > 400
    assert any(plan.dropped for plan, _ in PLANS)
    assert any(plan.num_steps > 5 and plan.most_micro > 2 for plan, _ in PLANS)


def test_shares_are_disjoint_and_complete_and_none_is_empty() -> None:
    for plan, _ in PLANS:
        read: list[int] = []
        for step in range(plan.num_steps):
            of_step = shares(plan, step)
            assert all(share for row in of_step for share in row)
            assert all(len(row) == plan.num_ranks for row in of_step)
            mine = sorted(position for row in of_step for share in row for position in share)
            assert len(mine) == plan.size(step)
            read += mine
        assert read == list(range(plan.length - plan.dropped))
        assert plan.dropped < plan.num_ranks


def test_a_step_takes_as_many_samples_as_fit() -> None:
    for plan, _ in PLANS:
        at = 0
        for step in range(plan.num_steps):
            end = at + plan.size(step)
            assert plan.sizes[at:end].sum() <= plan.global_targets
            assert end == plan.length or plan.sizes[at : end + 1].sum() > plan.global_targets
            assert {plan.step_at(position) for position in range(at, end)} == {step}
            at = end


def test_every_n_has_the_same_steps_but_for_a_dropped_tail() -> None:
    for seed, largest in itertools.product(range(4), (5, 30)):
        sizes = np.array(sizes_of(seed, 60, largest), dtype=np.int64)
        starts = step_starts(sizes, 0, 160)
        for ranks in (1, 2, 3, 5):
            plan = PackedPlan(sizes, 0, 160, 40, ranks)
            assert [plan.size(step) for step in range(plan.num_steps)] == np.diff(starts)[: plan.num_steps].tolist()
            assert len(starts) - 1 - plan.num_steps == bool(plan.dropped)


def test_the_rest_of_an_epoch_is_that_of_the_unbroken_run_with_the_same_shares() -> None:
    for plan, _ in PLANS:
        for done in range(plan.num_steps):
            start = sum(plan.size(step) for step in range(done))
            rest = PackedPlan(plan.sizes, start, plan.global_targets, plan.micro_targets, plan.num_ranks)
            assert rest.num_steps == plan.num_steps - done
            assert shares(rest, 0) == shares(plan, done)


def test_twice_the_largest_sample_is_never_exceeded_and_once_only_by_pairs() -> None:
    exceeded = 0
    for plan, largest in PLANS:
        if plan.micro_targets is None:
            assert plan.most_micro == 1
            continue
        for step in range(plan.num_steps):
            for share in itertools.chain.from_iterable(shares(plan, step)):
                if padded(plan, share) > plan.micro_targets:
                    exceeded += 1
                    assert plan.micro_targets < 2 * largest
                    assert len(share) == 2 or padded(plan, share) <= 2 * largest
    assert exceeded


def test_ranks_have_like_amounts_of_work_and_little_is_padded() -> None:
    sizes = sizes_of(1, 400, 256)
    dealt = deal(sizes, 4, 4096)
    costs = [[max(sizes[i] for i in share) * len(share) for share in row] for row in dealt]
    totals = [sum(row[rank] for row in costs) for rank in range(4)]
    assert max(totals) < 1.03 * min(totals)
    assert sum(totals) < 1.1 * sum(sizes)  # in order of appearance it would be almost twice as much
    assert all(max(row) < 1.15 * min(row) for row in costs)


def test_the_ranks_take_turns() -> None:
    sizes = [9, 5, 5, 1, 1, 1]
    first = [deal(sizes, 3, None, turn)[0].index([0]) for turn in range(3)]
    assert sorted(first) == [0, 1, 2]


@pytest.mark.parametrize("parts", [1, 2, 5, 12])
def test_a_cut_is_the_best_there_is(parts: int) -> None:
    for seed in range(6):
        descending = sorted(sizes_of(seed, 12, 20), reverse=True)
        bounds = cut(descending, parts)
        assert len(bounds) == parts + 1 and bounds[0] == 0 and bounds[-1] == 12
        assert all(low < high for low, high in itertools.pairwise(bounds))
        worst = max(descending[low] * (high - low) for low, high in itertools.pairwise(bounds))
        others = itertools.combinations(range(1, 12), parts - 1)
        each = ([0, *inner, 12] for inner in others)
        best = min(max(descending[a] * (b - a) for a, b in itertools.pairwise(one)) for one in each)
        assert worst == best


def test_groups_and_micro_steps() -> None:
    assert num_groups([8, 8, 4, 4, 2], 8) == 4
    assert num_groups([8, 8, 4, 4, 2], 16) == 2
    assert micro_steps([8, 8, 4, 4, 2], 2, 8) == 2
    assert micro_steps([8] * 5, 2, 8) == 2  # five samples are no three for each
    assert micro_steps([8] * 5, 2, None) == 1


def test_a_sample_larger_than_a_step_is_a_step_by_itself() -> None:
    assert step_starts(np.array([3, 99, 3, 3]), 0, 10) == [0, 1, 2, 4]


def test_a_million_samples_are_packed() -> None:
    sizes = np.minimum(256, np.random.default_rng(0).geometric(0.01, 1_000_000)).astype(np.int64)
    plan = PackedPlan(sizes, 0, 65536, 16384, 8)  # part of a second; hours, were it quadratic
    assert sum(plan.size(step) for step in range(plan.num_steps)) > 999_000
