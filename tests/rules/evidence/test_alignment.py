from lockstep.rules.evidence.alignment import mismatches, passed
from lockstep.trace.events import Event, Forward, Group
from lockstep.trace.trace import Trace
from tests.rules.state_runs import RETURNED, call, forward, run, trained


def first(trace: Trace) -> tuple[int, str] | None:
    """Index and kind of the first mismatch."""
    found = min(mismatches(trace), key=lambda one: one.when, default=None)
    return None if found is None else (found.index, found.why)


def test_kinds() -> None:
    same = [call(0), call(1, "barrier"), RETURNED]
    assert first(run(same, same)) is None
    for other in (call(0, "broadcast"), call(0, reduce="max"), call(0, dtype="int64"), call(0, shape=(3,))):
        assert first(run(same, [other, call(1, "barrier"), RETURNED])) == (0, "kind")
    assert first(run([call(0, "broadcast", src=0)], [call(0, "broadcast", src=1)])) == (0, "kind")


def test_one_element_is_one_element_whatever_its_shape() -> None:
    assert first(run([call(0, shape=())], [call(0, shape=(1,))])) is None


def test_sizes_of_what_each_rank_gives_may_differ() -> None:
    for op in ("all_gather_object", "scatter", "gather", "all_to_all_single"):
        assert first(run([call(0, op, shape=(3,))], [call(0, op, shape=(5,))])) is None


def test_a_call_more_where_the_other_rank_has_ended() -> None:
    assert first(run([call(0), call(1)], [call(0), RETURNED])) == (1, "count")
    assert first(run([call(0), RETURNED], [call(0), call(1)])) == (1, "count")


def test_a_call_more_where_the_other_rank_went_on_working() -> None:
    one: list[Event] = [*trained(0), call(0, "barrier", done=False)]
    other: list[Event] = [*trained(0), forward()]
    assert first(run(one, other)) == (0, "count")
    assert isinstance(passed(run(one, other).ranks[1], run(one, other).ranks[0], one[-1]), Forward)  # type: ignore[arg-type]


def test_the_tail_of_a_rank_that_was_cut_is_no_difference() -> None:
    assert first(run([*trained(0), call(0), call(1)], [*trained(0), call(0)])) is None
    evaluates = forward(training=False, grad=False)
    assert first(run([*trained(0), call(0)], [*trained(0), evaluates])) is None


def test_the_place_of_the_call_too_many_is_told_though_a_later_one_shows_it() -> None:
    extra, common = "train.py:20", "train.py:30"
    one = [call(0, at=extra), call(1, at=common), RETURNED]
    assert first(run(one, [call(0, at=common), RETURNED])) == (0, "count")


def test_two_places_in_another_order() -> None:
    loss, hits = "train.py:20", "train.py:21"
    one = [call(0, at=loss), call(1, at=hits)]
    assert first(run(one, [call(0, at=hits), call(1, at=loss)])) == (0, "order")
    later = "train.py:25"
    assert first(run([call(0, at=loss), call(1, at=later)], [call(0, at=hits), call(1, at=loss)])) == (0, "order")


def test_branches_that_call_the_same_are_left_alone() -> None:
    one, other = "train.py:20", "train.py:22"
    assert first(run([call(0, at=one), RETURNED], [call(0, at=other), RETURNED])) is None
    barriers = [
        [call(0, "barrier", at=one), call(1, "barrier", at=other)] for one, other in ((one, other), (other, one))
    ]
    assert first(run(*barriers)) is None
    turns = [
        [call(0, "broadcast", at=one, src=0), call(1, "broadcast", at=other, src=1)],
        [call(0, "broadcast", at=other, src=0), call(1, "broadcast", at=one, src=1)],
    ]
    assert first(run(*turns)) is None


def test_messages_between_two_ranks_are_no_collectives() -> None:
    assert first(run([call(0, "send"), call(1)], [call(0), RETURNED])) is None


def test_parts_of_the_ranks_are_compared_among_themselves() -> None:
    def group(*ranks: int) -> Group:
        return Group(what="new", group=1, ranks=ranks)

    pairs = [[group(0, 1), call(0, group=1, ranks=(0, 1)), RETURNED] for _ in range(2)]
    trace = run(*pairs, [group(2), RETURNED], [RETURNED])
    assert first(trace) is None
    broken = run(pairs[0], [group(0, 1), RETURNED], [RETURNED])
    (found,) = mismatches(broken)
    assert (found.ranks, found.counts, found.why) == ((0, 1), (1, 0), "count")


def test_every_rank_is_compared_with_the_first() -> None:
    same = [call(0), RETURNED]
    (found,) = mismatches(run(same, same, [RETURNED]))
    assert (found.one, found.other) == (0, 2)
