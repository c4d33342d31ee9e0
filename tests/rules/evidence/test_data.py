from lockstep.rules.evidence.data import data_parallel, ended_itself, readings, repeats, rising, some, sources
from lockstep.trace.events import Backward, Batch, Event, Forward, Pass, Step, Wrap
from lockstep.trace.trace import RankTrace
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, SECOND, loader, plain, reading, trained


def of(events: list[Event]) -> RankTrace:
    return trace(events).ranks[0]


def batch(of: int, number: int, stream: str = "Points/16/16#0") -> Batch:
    return Batch(loader=of, stream=stream, number=0, batch=number, ids=(number,))


def test_a_pass_of_training() -> None:
    (one,) = readings(of([loader(), *reading(loader(), FIRST)]))
    assert (one.ids, one.trained, one.steps, one.training) == (FIRST, 2, 2, True)
    assert one.end is not None and one.end.batches == 2
    assert str(one.place) == "/home/me/train.py:10"


def test_evaluation_within_an_epoch_is_told_apart() -> None:
    """A few batches are evaluated between two batches of the training, and the pass over them is left."""
    train, judge = loader(), loader(1)
    events = [train, *reading(train, FIRST[:4], ended=False)]
    events += [judge, *reading(judge, SECOND, train=False, ended=False)]
    events += [batch(0, 1), *trained()]
    first, second = readings(of(events))
    assert (first.training, first.trained) == (True, 2)
    assert (second.training, second.trained, second.evaluated) == (False, 0, True)


def test_two_loaders_that_are_read_together_are_both_trained_on() -> None:
    one, other = loader(0), loader(1)
    events: list[Event] = []
    for each in (one, other):
        events += [each, Pass(loader=each.loader, stream=each.stream, number=0)]
    for number in range(3):
        events += [batch(0, number, one.stream), batch(1, number, other.stream), *trained()]
    assert [each.training for each in readings(of(events))] == [True, True]


def test_a_teacher_without_gradients_does_not_make_it_an_evaluation() -> None:
    teacher = Forward(model=1, via="plain", grad=False, training=False)
    events = [loader(), Pass(loader=0, stream="Points/16/16#0", number=0)]
    for number in range(3):
        events += [batch(0, number), teacher, *trained()]
    assert readings(of(events))[0].training


def test_accumulation_trains_on_every_batch() -> None:
    events: list[Event] = [loader(), Pass(loader=0, stream="Points/16/16#0", number=0)]
    for number in range(4):
        events += [batch(0, number), Forward(model=0, via="wrapper"), Backward()]
        events += [Step(optimizer=0, number=number // 2)] if number % 2 else []
    (one,) = readings(of(events))
    assert (one.trained, one.steps) == (4, 2)


def test_the_same_data_on_all_ranks() -> None:
    sides = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    (source,) = sources(trace(*sides))
    assert (source.name, source.training, source.rank_aware, source.one_split) == ("Points/16/16#0", True, True, True)
    assert [[one.ids for one in each] for each in source.passes()] == [[FIRST, SECOND]]


def test_data_of_other_lengths_are_matched_by_the_line_of_their_loader() -> None:
    sides = []
    for length in (9, 8):
        one = plain(0, length=length, stream=f"Points/{length}/{length}#0")
        sides.append([one, *reading(one, EVERY[:length])])
    (source,) = sources(trace(*sides))
    assert [one.length for one in source.loaders] == [9, 8]


def test_what_one_rank_alone_reads_belongs_to_nothing() -> None:
    both = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    alone = [loader(1), *reading(loader(1), EVERY, train=False)]
    assert len(sources(trace(both[0] + alone, both[1]))) == 1
    assert len(sources(trace(both[0], both[1] + alone))) == 1


def test_a_pass_that_ends_with_the_trace_goes_with_those_before() -> None:
    of = loader()
    cut = [Pass(loader=0, stream=of.stream, number=1), Batch(loader=0, stream=of.stream, number=1, batch=0, ids=(1,))]
    side = [of, *reading(of, FIRST), *cut]
    (source,) = sources(trace(side, side))
    assert source.training and len(list(source.passes())) == 2


def test_small_words() -> None:
    assert repeats((1, 2, 1, 1)) == 2
    assert rising((1, 2, 5)) and not rising((1, 5, 2))
    assert some({3, 1, 2}) == "1, 2, 3" and some((9, 8, 7), 2) == "9, 8, ..."
    assert data_parallel(trace([Wrap(model=0, kind="ddp", group_size=2)], []))
    assert not data_parallel(trace([Wrap(model=0, kind="ddp", group_size=2)], [], [], []))
    assert ended_itself(trace([]).ranks[0]) and not ended_itself(trace([], how="raised").ranks[0])
