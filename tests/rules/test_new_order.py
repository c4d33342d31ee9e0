from typing import Any

from lockstep.core.finding import Severity
from lockstep.rules import new_order
from lockstep.trace.events import Event
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, FOURTH, SECOND, THIRD, loader, plain, reading, told

SAME = ((FIRST, FIRST), (SECOND, SECOND))
NEW = ((FIRST, THIRD), (SECOND, FOURTH))


def passes(ids: Any, *calls: int, before: bool = True, **fields: Any) -> Trace:
    sides: list[list[Event]] = []
    for rank in (0, 1):
        of = loader(0, rank, **fields)
        side: list[Event] = [of] if before else []
        for number, one in enumerate(ids[rank]):
            side += [told(calls[number], 0 if number else None)] if number < len(calls) else []
            side += reading(of, one, number)
        sides.append(side)
    return trace(*sides)


def test_set_epoch_was_never_called() -> None:
    (finding,) = new_order.dynamic(passes(SAME))
    assert (finding.code, finding.severity) == ("LS204", Severity.ERROR)
    assert "all 2 passes over Points/16/16#0 have the order of the first (8, 2, 14, 5, 0, 11, ...)" in finding.seen
    assert "set_epoch of its DistributedSampler was never called" in finding.seen
    assert [side.text[:14] for side in finding.witnesses] == ["rank 0, pass 0", "rank 0, pass 1"]


def test_set_epoch_was_called_with_one_value() -> None:
    (finding,) = new_order.dynamic(passes(SAME, 0, 0))
    assert "set_epoch was called with 0 only" in finding.seen


def test_a_sampler_that_does_not_shuffle_is_a_note() -> None:
    ordered = (tuple(range(0, 16, 2)), tuple(range(1, 16, 2)))
    for fields in ({"shuffle": False}, {"shuffle": None, "sampler": "Chunks"}):
        (finding,) = new_order.dynamic(passes([(one, one) for one in ordered], **fields))
        assert finding.severity is Severity.NOTE
        assert "does not shuffle" in finding.seen


def test_a_sampler_of_ones_own_is_known_by_its_shares() -> None:
    own = {"sampler": "Shares", "sampler_ranks": None, "shuffle": None}
    assert len(list(new_order.dynamic(passes(SAME, **own)))) == 1


def test_left_alone() -> None:
    assert not list(new_order.dynamic(passes(NEW, 0, 1)))
    assert not list(new_order.dynamic(passes(SAME, 0, 1))), "that is another rule's"
    assert not list(new_order.dynamic(passes(((FIRST,), (SECOND,))))), "one epoch"
    assert not list(new_order.dynamic(passes(((FIRST[:4],) * 2, (SECOND[:4],) * 2)))), "too few to tell"
    whole = [plain(), *reading(plain(), EVERY), *reading(plain(), EVERY, 1)]
    assert not list(new_order.dynamic(trace(whole, whole))), "no sampler that knows ranks"


def test_evaluation_is_left_alone() -> None:
    sides = [
        [loader(0, rank), *(e for n in (0, 1) for e in reading(loader(0, rank), SAME[rank][n], n, train=False))]
        for rank in (0, 1)
    ]
    assert not list(new_order.dynamic(trace(*sides)))


def test_a_look_at_the_training_data_within_an_epoch_is_left_alone() -> None:
    """A few batches of the same epoch, evaluated, have the same order; they are no pass of the training."""
    sides = []
    for rank in (0, 1):
        of = loader(0, rank)
        sides.append(
            [
                of,
                *reading(of, (FIRST, SECOND)[rank]),
                *reading(of, (FIRST, SECOND)[rank][:6], 1, train=False, ended=False),
            ]
        )
    assert not list(new_order.dynamic(trace(*sides)))
