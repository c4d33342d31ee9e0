import pytest

from lockstep.core.finding import Place, Severity
from lockstep.rules import own_shard
from lockstep.trace.events import Collective, Event, Forward, Wrap
from tests.rules.by_hand import trace
from tests.rules.data_runs import (
    EVERY,
    FIRST,
    FOURTH,
    HERE,
    SECOND,
    THIRD,
    loader,
    plain,
    reading,
    stream,
)


def test_all_ranks_read_everything_in_one_order() -> None:
    side = [plain(), *reading(plain(), EVERY, content="a")]
    (finding,) = own_shard.dynamic(trace(side, side))
    assert (finding.code, finding.severity) == ("LS201", Severity.ERROR)
    assert "16 of 16 samples of their own in common, in the same order (8, 2, 14, 5, 0, 11, ..." in finding.seen
    assert "RandomSampler knows nothing of ranks" in finding.seen
    assert finding.place == Place(HERE, 10)
    assert [side.rank for side in finding.witnesses] == [0, 1]


def test_all_ranks_read_everything_in_orders_of_their_own() -> None:
    one, other = ([plain(), *reading(plain(), ids, content="a")] for ids in (EVERY, SECOND + FIRST))
    (finding,) = own_shard.dynamic(trace(one, other))
    assert "in different orders" in finding.seen


def test_augmented_images_are_known_by_their_labels() -> None:
    one, other = (
        [plain(), *reading(plain(), ids, content="a", noisy=True), *reading(plain(), ids, 1, content="a", noisy=True)]
        for ids in (EVERY, SECOND + FIRST)
    )
    assert len(list(own_shard.dynamic(trace(one, other)))) == 1


def test_a_run_that_was_cut_early() -> None:
    one, other = ([plain(), *reading(plain(), ids, ended=False)] for ids in (FIRST, FIRST[4:] + SECOND[:4]))
    assert len(list(own_shard.dynamic(trace(one, other, how="enough")))) == 1


def test_a_sampler_that_takes_every_rank_for_the_first() -> None:
    of = loader(sampler_ranks=1)
    side = [of, *reading(of, EVERY)]
    (finding,) = own_shard.dynamic(trace(side, side))
    assert "its DistributedSampler takes itself for rank 0 of 1" in finding.seen


def test_weighted_draws_that_are_not_shared_out() -> None:
    of = plain(sampler="WeightedRandomSampler")
    for one, other in ((EVERY[:8] * 2, EVERY[:8] * 2), (EVERY[:8] * 2, EVERY[4:12] * 2)):
        assert list(own_shard.dynamic(trace([of, *reading(of, one)], [of, *reading(of, other)])))


def test_a_stream_that_every_rank_reads() -> None:
    side = [stream(), *reading(stream(), EVERY)]
    (finding,) = own_shard.dynamic(trace(side, side))
    assert "the same 16 samples in the same order (by what they hold)" in finding.seen
    assert "iterable" in finding.next_step


def test_batches_made_by_hand_that_are_the_same() -> None:
    def given(*inputs: str) -> list[Event]:
        return [Forward(model=0, via="wrapper", inputs=one) for one in inputs]

    (finding,) = own_shard.dynamic(trace(given("aa", "bb", "cc"), given("aa", "bb")))
    assert "the same inputs in each of 2 training forwards" in finding.seen
    assert not list(own_shard.dynamic(trace(given("aa", "bb"), given("aa", "cc"))))
    assert not list(own_shard.dynamic(trace(given("aa", "aa"), given("aa", "aa")))), "one constant input"
    assert not list(own_shard.dynamic(trace(given(), given())))


@pytest.mark.parametrize("ids", [(FIRST, SECOND), (FIRST, (*SECOND[:-1], FIRST[0])), (THIRD, FOURTH)])
def test_shares_are_left_alone_padding_included(ids: tuple[tuple[int, ...], ...]) -> None:
    one, other = ([loader(0, rank), *reading(loader(0, rank), ids[rank])] for rank in (0, 1))
    assert not list(own_shard.dynamic(trace(one, other)))


def test_data_divided_by_hand_are_left_alone() -> None:
    """The same indices on both ranks, of other samples."""
    one, other = ([plain(length=8), *reading(plain(length=8), range(8), content=name)] for name in "ab")
    assert not list(own_shard.dynamic(trace(one, other)))
    parts = [plain(length=8, split=name, root_length=16) for name in "ab"]
    sides = [[part, *reading(part, ids)] for part, ids in zip(parts, (FIRST, SECOND), strict=True)]
    assert not list(own_shard.dynamic(trace(*sides)))


def test_evaluation_of_everything_on_every_rank_is_left_alone() -> None:
    train = [[loader(1, rank), *reading(loader(1, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    whole = [plain(), *reading(plain(), EVERY, train=False)]
    assert not list(own_shard.dynamic(trace(train[0] + whole, train[1] + whole)))


def test_an_evaluation_of_the_same_part_on_every_rank() -> None:
    def side(rank: int, count: int, op: str = "all_reduce") -> list[Event]:
        judged = reading(plain(), EVERY[:count], train=False, ended=False)
        call = Collective(number=0, op=op)
        return [loader(1, rank), *reading(loader(1, rank), (FIRST, SECOND)[rank]), plain(), *judged, call]

    (finding,) = own_shard.dynamic(trace(side(0, 8), side(1, 8)))
    assert finding.severity is Severity.DEVIATION
    assert finding.seen.startswith("all ranks evaluated the same 8 of 16 samples and put their results together")
    assert not list(own_shard.dynamic(trace(side(0, 8, "barrier"), side(1, 8, "barrier")))), "each on its own"
    assert not list(own_shard.dynamic(trace(side(0, 16), side(1, 16)))), "everything"


def test_batches_that_the_script_cuts_itself_are_left_alone() -> None:
    def side(rank: int) -> list[Event]:
        events = [plain(), *reading(plain(), EVERY, content="a")]
        return [
            Forward(model=0, via="wrapper", inputs=f"{rank}-{number}") if isinstance(event, Forward) else event
            for number, event in enumerate(events)
        ]

    assert not list(own_shard.dynamic(trace(side(0), side(1))))


def test_ranks_that_share_one_copy_are_left_alone() -> None:
    side = [Wrap(model=0, kind="fsdp", group_size=2), plain(), *reading(plain(), EVERY)]
    assert not list(own_shard.dynamic(trace(side, side, side, side)))
