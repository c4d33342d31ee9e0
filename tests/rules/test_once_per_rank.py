from lockstep.rules import once_per_rank
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, SECOND, loader, reading, stream


def test_every_worker_reads_everything() -> None:
    of = stream(workers=2)
    (finding,) = once_per_rank.dynamic(trace([of, *reading(of, FIRST[:4] * 2 + FIRST[4:] * 2)]))
    assert "rank 0 read 16 samples, of which 8 are different: each of the 2 workers reads them all" in finding.seen


def test_before_the_end_it_shows_in_the_turns_of_workers() -> None:
    of = stream(workers=2)
    turns = FIRST[:4] * 2 + FIRST[4:] * 2
    assert len(list(once_per_rank.dynamic(trace([of, *reading(of, turns, ended=False)])))) == 1
    assert not list(once_per_rank.dynamic(trace([of, *reading(of, EVERY, ended=False)])))


def test_left_alone() -> None:
    for of in (stream(workers=2), stream(workers=1), loader(workers=2)):
        assert not list(once_per_rank.dynamic(trace([of, *reading(of, FIRST)], [of, *reading(of, SECOND)])))
    twice = stream(workers=0)
    assert not list(once_per_rank.dynamic(trace([twice, *reading(twice, FIRST * 2)]))), "the stream itself repeats"
    some = stream(workers=2)
    assert not list(once_per_rank.dynamic(trace([some, *reading(some, FIRST + FIRST[:2])]))), "few are equal by chance"
