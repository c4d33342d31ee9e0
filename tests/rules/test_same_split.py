from lockstep.core.finding import Severity
from lockstep.rules import same_split
from lockstep.trace.events import Event
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, SECOND, loader, plain, reading


def split(train: tuple[int, ...], judge: tuple[int, ...], rank: int, name: str, aware: bool = True) -> list[Event]:
    make = loader if aware else plain
    one, other = make(0, length=8, split=f"train {name}"), make(1, length=8, split=f"test {name}")
    del rank
    return [one, *reading(one, train), other, *reading(other, judge, train=False)]


def test_a_split_drawn_by_every_rank() -> None:
    sides = [split(FIRST, SECOND, 0, "a"), split(FIRST[4:] + SECOND[:4], FIRST[:4], 1, "b")]
    (finding,) = same_split.dynamic(trace(*sides))
    assert (finding.code, finding.severity) == ("LS207", Severity.ERROR)
    assert "of 8 and 8 samples, chosen differently; 4 that both read are the same" in finding.seen
    assert "Rank 0 trains on 4 samples that rank 1 evaluates (2, 5, 8, 14)" in finding.seen


def test_a_leak_without_samplers() -> None:
    """Each rank trains on a split of its own, whole; what the one trains on the other evaluates."""
    sides = [split(FIRST, SECOND, 0, "a", False), split(SECOND, FIRST, 1, "b", False)]
    (finding,) = same_split.dynamic(trace(*sides))
    assert finding.seen.startswith("rank 0 trains on 8 samples that rank 1 evaluates")
    assert [side.rank for side in finding.witnesses] == [0, 1]


def test_lengths_that_differ() -> None:
    one, other = (
        loader(0, rank, length=length, stream=f"Points/{length}/{length}#0") for rank, length in ((0, 16), (1, 14))
    )
    (finding,) = same_split.dynamic(trace([one, *reading(one, FIRST)], [other, *reading(other, SECOND)]))
    assert "16 samples on rank 0 and 14 on rank 1" in finding.seen


def test_a_list_that_every_rank_has_shuffled() -> None:
    """The sampler deals out positions; what lies there differs, and is the same samples over all."""

    def side(rank: int) -> list[Event]:
        of, ids = loader(0, rank), (FIRST, SECOND)[rank]
        events = [of, *reading(of, ids, content="a"), *reading(of, (*ids[::-1], 0, 1), 1, content="a")]
        if not rank:
            return events
        turned = []
        for event in events:
            if hasattr(event, "rows") and event.ids:
                places = [(index + 1) % 16 for index in event.ids]
                rows = {"0": tuple(f"a-{one}" for one in places), "1": tuple(f"{one % 3}" for one in places)}
                event = type(event)(**{**vars(event), "rows": rows})
            turned.append(event)
        return turned

    (finding,) = same_split.dynamic(trace(side(0), side(1)))
    assert "an index is one sample here and another there" in finding.seen


def alone(trace: Trace) -> bool:
    return not list(same_split.dynamic(trace))


def test_left_alone() -> None:
    assert alone(trace(split(FIRST, SECOND, 0, "a"), split(FIRST, SECOND, 1, "a")))
    parts = [loader(0, rank, length=8, split=f"part {rank}") for rank in (0, 1)]
    assert alone(trace(*([of, *reading(of, ids[:4])] for of, ids in zip(parts, (FIRST, SECOND), strict=True))))
    own = [plain(0, length=length, stream=f"Points/{length}/{length}#0") for length in (9, 8)]
    assert alone(trace(*([of, *reading(of, range(8), content=name)] for of, name in zip(own, "ab", strict=True))))


def test_evaluation_on_training_data_is_left_alone() -> None:
    """Where each rank by itself evaluates what it trains on, that is meant."""
    sides = [split(FIRST, EVERY[2:10], 0, "a", False), split(SECOND, EVERY[6:14], 1, "b", False)]
    assert alone(trace(*sides))


def test_augmentation_is_no_other_data() -> None:
    sides = [
        [
            loader(0, rank),
            *reading(loader(0, rank), EVERY[rank:9], content="a", noisy=True),
            *reading(loader(0, rank), EVERY, 1, content="a", noisy=True),
        ]
        for rank in (0, 1)
    ]
    assert alone(trace(*sides))
