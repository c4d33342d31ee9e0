from lockstep.core.finding import Place
from lockstep.rules import same_collectives
from lockstep.trace.events import Event
from tests.rules.state_runs import RETURNED, call, run, trained


def test_a_reduction_on_one_rank() -> None:
    trace = run([*trained(0), call(0, at="train.py:42", done=False)], [*trained(0), RETURNED])
    (finding,) = same_collectives.dynamic(trace)
    assert finding.seen == (
        "collective 0: rank 0 calls all_reduce (sum) of one float32, rank 1 makes no such call; "
        "they made 1 and 0 calls."
    )
    assert finding.place == Place("train.py", 42)
    assert [side.text for side in finding.witnesses] == [
        "all_reduce (sum) of one float32 as collective 0, and it never returned",
        "came to its end without it",
    ]


def test_a_barrier_that_the_other_rank_has_passed() -> None:
    one: list[Event] = [*trained(0), call(0, "barrier", done=False)]
    (finding,) = same_collectives.dynamic(run(one, [*trained(0), *trained(1)]))
    assert finding.witnesses[1].text == "went on to forward without it"
    assert finding.witnesses[1].step == 1


def test_two_kinds() -> None:
    trace = run([call(0, shape=(2, 3))], [call(0, "broadcast", src=0)])
    (finding,) = same_collectives.dynamic(trace)
    assert "rank 0 calls all_reduce (sum) of 2x3 float32, rank 1 broadcast of one float32 with rank 0" in finding.seen


def test_an_order() -> None:
    loss, hits = "train.py:20", "train.py:21"
    ranks = [[call(0, at=one), call(1, at=other)] for one, other in ((loss, hits), (hits, loss))]
    (finding,) = same_collectives.dynamic(run(*ranks))
    assert finding.seen.endswith("all_reduce (sum) of one float32, from lines that they reach in another order.")
    assert [side.place for side in finding.witnesses] == [Place("train.py", 20), Place("train.py", 21)]


def test_only_the_earliest_is_told() -> None:
    ranks = [[call(0, op), call(1, group=1, ranks=(0, 1), op=op)] for op in ("barrier", "all_gather")]
    (finding,) = same_collectives.dynamic(run(*ranks))
    assert finding.seen.startswith("collective 0: ")


def test_a_group_is_named() -> None:
    ranks = [[call(0, op, group=1, ranks=(0, 1))] for op in ("barrier", "all_gather")]
    (finding,) = same_collectives.dynamic(run(*ranks))
    assert finding.seen.startswith("collective 0 in the group of ranks 0, 1: ")


def test_left_alone() -> None:
    ranks = [[*trained(0), call(0), *trained(1), call(1, "barrier"), RETURNED] for _ in range(2)]
    assert not list(same_collectives.dynamic(run(*ranks)))
    assert not list(same_collectives.dynamic(run([*trained(0), call(0)], trained(0)))), (
        "the tail of a rank that was cut"
    )
