from typing import Any

from lockstep.rules import equal_steps
from lockstep.trace.events import Batch, Event, Forward, Step
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, SECOND, loader, plain, reading


def uneven(*, how: str = "returned", cut: str = "", joined: bool = False, passes: tuple[int, int] = (1, 1)) -> Trace:
    sides: list[list[Event]] = []
    for rank, length in enumerate((9, 8)):
        of = plain(0, length=length, stream=f"Points/16/{length}#0", split=f"part {rank}")
        sides.append([of, *(e for n in range(passes[rank]) for e in reading(of, EVERY[:length], n, joined=joined))])
    return trace(*sides, how=how, cut=cut)


def test_a_rank_with_a_batch_more() -> None:
    (finding,) = equal_steps.dynamic(uneven())
    assert finding.seen == "rank 0 had 3 batches and rank 1 2 in pass 0 over Points/16/9#0"
    assert finding.witnesses[1].text == "rank 1: 2 batches, from 8 samples"


def test_a_rank_that_hangs_in_the_batch_that_the_other_has_not() -> None:
    long, short = (plain(0, split=name) for name in "ab")
    sides = [[long, *reading(long, FIRST, batch=2, ended=False)], [short, *reading(short, SECOND[:6], batch=2)]]
    (finding,) = equal_steps.dynamic(trace(*sides, cut="hang"))
    assert "rank 0 had 4 batches and rank 1 3" in finding.seen


def test_a_step_that_one_rank_skips() -> None:
    sides = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    first = next(event for event in sides[1] if isinstance(event, Step))
    sides[1].remove(first)
    (finding,) = equal_steps.dynamic(trace(*sides))
    assert "rank 0 had 2 optimizer steps and rank 1 1" in finding.seen


def test_a_rank_that_stops_early() -> None:
    sides: list[list[Event]] = []
    for rank, count in enumerate((1, 2)):
        of = loader(0, rank)
        sides.append([of, *(e for n in range(count) for e in reading(of, (FIRST, SECOND)[rank], n))])
    (finding,) = equal_steps.dynamic(trace(*sides))
    assert finding.seen == "rank 1 had 4 batches in the whole training and rank 0 2"
    assert not list(equal_steps.dynamic(trace(*sides, how="enough"))), "the recording stopped here"
    assert not list(equal_steps.dynamic(trace(*sides, cut="time")))


def test_left_alone() -> None:
    assert not list(equal_steps.dynamic(uneven(joined=True)))
    even = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    assert not list(equal_steps.dynamic(trace(*even)))
    cut = [[loader(0, rank), *reading(loader(0, rank), EVERY[: 8 - 4 * rank], ended=False)] for rank in (0, 1)]
    assert not list(equal_steps.dynamic(trace(*cut, how="enough")))


def test_a_surplus_batch_that_is_not_used_is_left_alone() -> None:
    """The ranks have agreed on the smallest number of batches, and the longer one leaves its pass."""
    sides: list[list[Event]] = []
    for rank, length in enumerate((9, 8)):
        of = plain(0, split=f"part {rank}")
        events = reading(of, EVERY[:8], ended=bool(rank))
        if not rank:
            events.append(Batch(loader=0, stream=of.stream, number=0, batch=2, ids=(EVERY[length - 1],)))
        sides.append([of, *events])
    assert not list(equal_steps.dynamic(trace(*sides)))


def test_a_rank_that_waits_in_a_forward() -> None:
    sides = [[loader(0, rank), *reading(loader(0, rank), FIRST, ended=bool(rank))] for rank in (0, 1)]
    sides[0] += [Batch(loader=0, stream="Points/16/16#0", number=0, batch=2, ids=(1,)), Forward(model=0, via="wrapper")]
    assert len(list(equal_steps.dynamic(trace(*sides, cut="hang")))) == 1


def test_shares_of_an_evaluation_may_differ() -> None:
    def side(rank: int, **more: Any) -> list[Event]:
        of = plain(1, split=f"part {rank}", **more)
        return [
            loader(0, rank),
            *reading(loader(0, rank), (FIRST, SECOND)[rank]),
            of,
            *reading(of, EVERY[: 9 - rank], train=False),
        ]

    assert not list(equal_steps.dynamic(trace(side(0), side(1))))
