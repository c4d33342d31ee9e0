"""Which moments of two ranks have an order."""

from dataclasses import dataclass

from lockstep.rules.evidence.precedence import Precedence
from lockstep.trace.events import Backward, Collective, Event, Group, Wrap
from tests.rules.by_hand import barrier, file, trace


@dataclass(frozen=True)
class At:
    rank: int
    index: int


def find(*runs: list[Event]) -> tuple[Precedence, list[At]]:
    """And where the files of each rank are, in order of ranks."""
    run = trace(*runs)
    files = file("save")
    places = [
        At(rank.rank, index)
        for rank in run.ranks
        for index, event in enumerate(rank.events)
        if type(event) is type(files)
    ]
    return Precedence(run), places


def test_one_rank_is_in_its_own_order() -> None:
    order, (first, second) = find([file("save"), file("save")], [])
    assert order.before(first, second) and not order.before(second, first)


def test_what_makes_ranks_wait() -> None:
    for meeting in (
        barrier(),
        Collective(number=0, op="all_gather_object", ranks=(0, 1)),
        Backward(flags={"0": True}),
        Wrap(model=0, kind="ddp", group_size=2),
        Group(what="init"),
    ):
        order, (first, second) = find([file("save"), meeting], [meeting, file("load")])
        assert order.before(first, second), meeting
        assert not order.before(second, first) and not order.together(first, second)


def test_what_does_not() -> None:
    for nothing in (Backward(flags={"0": False}), Backward(), Wrap(model=0, kind="ddp", group_size=1), file("mkdir")):
        run = trace([file("save"), nothing], [nothing, file("load")])
        assert Precedence(run).together(At(0, 1), At(1, 2)), nothing  # Start is at 0


def test_one_sided() -> None:
    to_all = Collective(number=0, op="broadcast", src=0, ranks=(0, 1))
    to_one = Collective(number=0, op="gather", src=0, ranks=(0, 1))
    order, (zero, one) = find([file("save"), to_all], [to_all, file("load")])
    assert order.before(zero, one)
    order, (zero, one) = find([file("save"), to_one], [to_one, file("load")])
    assert order.together(zero, one)
    order, (zero, one) = find([to_one, file("save")], [file("load"), to_one])
    assert order.before(one, zero)


def test_ranks_that_went_different_ways() -> None:
    """Meetings that do not fit are passed alone, those before stay."""
    other = Collective(number=1, op="barrier", group=1, ranks=(1,), time=5.0)
    order, (first, second) = find([file("save"), barrier(), barrier()], [barrier(), other, file("load")])
    assert order.before(first, second)
