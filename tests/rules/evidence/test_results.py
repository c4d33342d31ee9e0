from lockstep.rules.evidence.data import readings
from lockstep.rules.evidence.results import put_together
from lockstep.trace.events import Collective
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, SECOND, loader, reading


def test_collectives_between_an_evaluation_and_the_next_training() -> None:
    def call(op: str) -> Collective:
        return Collective(number=0, op=op)

    train, judge = loader(0), loader(1)
    events = [train, *reading(train, FIRST), call("all_gather"), judge, *reading(judge, SECOND, train=False)]
    events += [call("barrier"), call("all_reduce"), *reading(train, FIRST, 1), call("reduce")]
    rank = trace(events).ranks[0]
    assert [one.op for one in put_together(rank, readings(rank)[1])] == ["all_reduce"]
