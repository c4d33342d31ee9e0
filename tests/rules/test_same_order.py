from typing import Any

from lockstep.core.finding import Severity
from lockstep.rules import same_order
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, SECOND, loader, plain, reading

OTHERS = FIRST[4:] + SECOND[:4]
"""A share of another permutation: half of it is in FIRST."""


def two(ids: Any, epochs: tuple[int, int] = (0, 0), ended: bool = True, **fields: Any) -> Trace:
    sides = []
    for rank in (0, 1):
        of = loader(0, rank, **fields)
        sides.append([of, *reading(of, ids[rank], epoch=epochs[rank], ended=ended)])
    return trace(*sides)


def test_shares_of_different_permutations() -> None:
    (finding,) = same_order.dynamic(two((FIRST, OTHERS)))
    assert (finding.code, finding.severity) == ("LS206", Severity.ERROR)
    assert "ranks 0 and 1 both read 4 samples, and 4 of 16 were read by no rank" in finding.seen
    assert finding.next_step == "shuffle by the same seed on every rank"


def test_epochs_that_differ_are_named() -> None:
    (finding,) = same_order.dynamic(two((FIRST, OTHERS), epochs=(3, 2)))
    assert "the same value on every rank" in finding.next_step
    assert finding.witnesses[1].text.endswith("in epoch 2")


def test_a_sampler_of_ones_own() -> None:
    own = {"sampler": "Shares", "sampler_ranks": None, "shuffle": None}
    assert len(list(same_order.dynamic(two((FIRST, OTHERS), **own)))) == 1
    assert not list(same_order.dynamic(two((FIRST, OTHERS), ended=False, **own))), "it may yet be the whole"


def test_a_run_that_was_cut_early() -> None:
    assert len(list(same_order.dynamic(two((FIRST, OTHERS), ended=False)))) == 1


def test_left_alone() -> None:
    assert not list(same_order.dynamic(two((FIRST, SECOND))))
    assert not list(same_order.dynamic(two((FIRST, (*SECOND[:-1], FIRST[0])))))
    assert not list(same_order.dynamic(two((FIRST, FIRST[::-1])))), "not shared out at all: another rule's"
    repeated = FIRST[:4] + FIRST[:4]
    assert not list(same_order.dynamic(two((repeated, OTHERS)))), "drawn with replacement"
    sides = [[plain(), *reading(plain(), ids)] for ids in (FIRST, OTHERS)]
    assert not list(same_order.dynamic(trace(*sides)))


def test_other_splits_are_another_rules() -> None:
    of = [loader(0, rank, split=f"drawn {rank}") for rank in (0, 1)]
    sides = [[of[rank], *reading(of[rank], (FIRST, OTHERS)[rank])] for rank in (0, 1)]
    assert not list(same_order.dynamic(trace(*sides)))
