"""The order of an epoch and the shares of the ranks, as properties over many lengths, batches and numbers of ranks."""

import itertools

import pytest
import torch

from lockstep.runtime.data.order import EpochPlan, order, part

LENGTHS = [1, 2, 3, 5, 7, 12, 16, 17, 31, 50]
BATCHES = [1, 2, 3, 5, 8, 16, 60]
ACCUMULATIONS = [1, 2, 3, 4]
RANKS = [1, 2, 3, 4, 5, 7, 8]


def plans(starts: bool = True) -> list[EpochPlan]:
    """Every plan that `BatchPlan` lets through."""
    found = []
    for length, batch, accumulation, ranks in itertools.product(LENGTHS, BATCHES, ACCUMULATIONS, RANKS):
        if batch < ranks * accumulation:
            continue
        for start in sorted({0, batch, 2 * batch, length // 2, length - 1, length}) if starts else [0]:
            if 0 <= start <= length:
                found.append(EpochPlan(length, start, batch, accumulation, ranks))
    return found


def shares(plan: EpochPlan, step: int) -> list[list[list[int]]]:
    """Positions by micro-step and rank."""
    return [
        [list(range(*plan.share(step, micro, rank))) for rank in range(plan.num_ranks)]
        for micro in range(plan.num_micro(step))
    ]


def positions(plan: EpochPlan, step: int) -> list[int]:
    return [position for micro in shares(plan, step) for share in micro for position in share]


def test_there_are_plans_of_every_kind() -> None:
    made = plans()
    assert len(made) > 2000
    assert any(plan.dropped for plan in made)
    assert any(plan.num_steps == 0 for plan in made)
    assert any(0 < plan.num_micro(plan.num_steps - 1) < plan.accumulation for plan in made if plan.num_steps)


def test_shares_are_in_order_disjoint_and_complete_and_none_is_empty() -> None:
    for plan in plans():
        read: list[int] = []
        for step in range(plan.num_steps):
            of_step = shares(plan, step)
            assert all(share for micro in of_step for share in micro), plan
            assert len(positions(plan, step)) == plan.size(step)
            read += sorted(positions(plan, step))
        assert read == list(range(plan.start, plan.length - plan.dropped)), plan


def test_only_a_tail_below_the_number_of_ranks_is_dropped() -> None:
    for plan in plans():
        assert plan.dropped < plan.num_ranks
        assert plan.dropped in (0, plan.tail)
        assert (plan.length - plan.start) // plan.global_batch <= plan.num_steps
        if plan.num_ranks == 1:
            assert not plan.dropped


def test_every_n_has_the_same_global_batches() -> None:
    kept: dict[tuple[int, ...], dict[int, list[list[int]]]] = {}
    for plan in plans():
        batches = [sorted(positions(plan, step)) for step in range(plan.num_steps)]
        key = (plan.length, plan.start, plan.global_batch, plan.accumulation)
        kept.setdefault(key, {})[plan.num_ranks] = batches
    several = 0
    for by_ranks in kept.values():
        longest = max(by_ranks.values(), key=len)
        for batches in by_ranks.values():
            assert batches == longest[: len(batches)]  # a larger N may only drop the tail
            several += 1
    assert several > 1000


def test_a_full_step_has_all_its_micro_steps_and_equal_shares() -> None:
    for plan in plans():
        for step in range(plan.num_steps):
            sizes = [len(share) for micro in shares(plan, step) for share in micro]
            assert plan.num_micro(step) <= plan.accumulation
            if plan.size(step) == plan.global_batch:
                assert plan.num_micro(step) == plan.accumulation
                assert max(sizes) - min(sizes) <= 1


def test_resumed_from_any_step_what_is_left_is_read_at_any_n() -> None:
    for length, batch, accumulation in itertools.product([7, 16, 17, 50], [4, 8, 16], [1, 2]):
        whole = EpochPlan(length, 0, batch, accumulation, 1)
        for done in range(whole.num_steps + 1):
            consumed = min(length, done * batch)
            for ranks in (1, 2, 3, 4):
                if batch < ranks * accumulation:
                    continue
                rest = EpochPlan(length, consumed, batch, accumulation, ranks)
                read = [p for step in range(rest.num_steps) for p in sorted(positions(rest, step))]
                assert read == list(range(consumed, length - rest.dropped))
                # the global batches are those that an unbroken run would have had
                for step in range(rest.num_steps):
                    first = min(positions(rest, step))
                    assert (first, rest.size(step)) == ((done + step) * batch, whole.size(done + step))


def test_an_epoch_that_is_over_has_no_steps() -> None:
    for length in LENGTHS:
        assert EpochPlan(length, length, 4, 1, 2).num_steps == 0


def test_fewer_samples_than_ranks_make_no_step() -> None:
    plan = EpochPlan(3, 0, 16, 1, 4)
    assert (plan.num_steps, plan.dropped) == (0, 3)


@pytest.mark.parametrize("size", [0, 1, 5, 16, 1000003])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_are_dealt_evenly(size: int, parts: int) -> None:
    bounds = [part(size, index, parts) for index in range(parts)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("length", [1, 2, 17, 1000])
def test_an_order_is_a_permutation_and_a_pure_function(length: int) -> None:
    first = order(length, 3, 2).clone()
    assert sorted(first.tolist()) == list(range(length))
    order.cache_clear()
    torch.manual_seed(99)
    assert torch.equal(order(length, 3, 2), first)


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    made = [tuple(order(50, seed, epoch).tolist()) for seed in range(4) for epoch in range(4)]
    assert len(set(made)) == 16


def test_without_shuffling_it_is_the_order_of_the_data_set() -> None:
    assert order(9, 3, 2, False).tolist() == list(range(9))


def test_an_order_draws_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    order.cache_clear()
    order(100, 0, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_larger_parts_of_a_step_do_not_all_go_to_one_rank() -> None:
    plan = EpochPlan(100, 0, 100, 4, 2)
    sizes = [sum(stop - start for start, stop in (plan.share(0, m, rank) for m in range(4))) for rank in range(2)]
    assert sizes == [50, 50]


def test_a_resumed_rank_reads_the_very_positions_of_the_unbroken_run() -> None:
    whole = EpochPlan(50, 0, 8, 2, 3)
    for done in range(whole.num_steps):
        rest = EpochPlan(50, done * 8, 8, 2, 3)
        for step, micro, rank in itertools.product(range(rest.num_steps), range(2), range(3)):
            if micro < rest.num_micro(step):
                assert rest.share(step, micro, rank) == whole.share(done + step, micro, rank)
