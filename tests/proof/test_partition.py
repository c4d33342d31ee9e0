from collections.abc import Sequence

from lockstep.core.finding import Finding, Severity
from lockstep.core.proof import Status
from lockstep.proof.partition import made_anew, partition, shares
from lockstep.trace.events import Batch, Event, Loader, Pass, PassEnd
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace

STREAM = "Data/8/8#0"


def reads(*ids: int, number: int = 0, grad: bool = True, ended: bool = True) -> list[Event]:
    batches = [ids[start : start + 2] for start in range(0, len(ids), 2)]
    events: list[Event] = [
        Batch(loader=0, stream=STREAM, number=number, batch=count, ids=batch, size=len(batch), grad=grad)
        for count, batch in enumerate(batches)
    ]
    return [*events, *([PassEnd(loader=0, stream=STREAM, number=number, batches=len(batches))] * ended)]


def loader() -> Event:
    return Loader(loader=0, stream=STREAM, root_length=8, length=8)


def test_shares_of_every_pass() -> None:
    first, second = shares(
        trace([loader(), *reads(0, 1, 2), *reads(3, number=1, ended=False)], [*reads(4, 5), *reads(6, number=1)])
    )
    assert (first.stream, first.number, first.length, first.ids) == (STREAM, 0, 8, ((0, 1, 2), (4, 5)))
    assert first.complete
    assert (second.ids, second.complete) == (((3,), (6,)), False)


def test_a_stream_that_one_rank_reads() -> None:
    (one,) = shares(trace([], reads(1, 2)))
    assert (one.ids, one.length, one.complete) == (((), (1, 2)), None, False)


def test_content_stands_for_indices_where_there_are_none() -> None:
    def batch(*content: str) -> list[Event]:
        return [Batch(loader=0, stream="Iter", number=0, batch=0, rows={"0": content}, size=len(content))]

    (one,) = shares(trace(batch("a", "b"), batch("b", "c")))
    assert one.ids == ((0, 1), (1, 2))


def rung_of(made: Trace, serious: Sequence[Finding] = ()) -> tuple[Status, str]:
    rung = partition(made, tuple(serious), tuple(serious))
    return rung.status, rung.said


def test_disjoint_shares_pass() -> None:
    status, said = rung_of(trace([loader(), *reads(0, 1, 2, 3)], reads(4, 5, 6, 7)))
    assert status is Status.PASS
    assert "4 + 4" in said
    assert "none on more than one rank" in said


def test_samples_on_two_ranks_are_counted() -> None:
    status, said = rung_of(trace([loader(), *reads(0, 1, 2, 3)], reads(3, 4, 0)))
    assert status is Status.PASS  # what is wrong about it, the rules say
    assert "2 on more than one rank" in said


def test_findings_break_it() -> None:
    finding = Finding("LS201", Severity.ERROR, "both read all", "each reads its own", "use a sampler")
    status, said = rung_of(trace(reads(0, 1), reads(0, 1)), [finding])
    assert status is Status.FAIL
    assert "LS201" in said
    assert "both read all" in said


def test_what_breaks_nothing_is_kept() -> None:
    note = Finding("LS204", Severity.NOTE, "the same order", "a new one", "shuffle")
    rung = partition(trace(reads(0), reads(1)), (note,), ())
    assert (rung.status, rung.findings) == (Status.PASS, (note,))


def test_nothing_to_judge() -> None:
    status, said = rung_of(trace([], []))
    assert status is Status.ABSTAIN
    assert "no DataLoader" in said
    status, said = rung_of(trace(reads(0, grad=False), reads(1, grad=False)))
    assert status is Status.ABSTAIN
    assert "no training pass" in said


def holding(*content: str) -> Trace:
    """One rank that reads four samples of this content twice."""
    events = [loader()]
    for number in (0, 1):
        rows = {"0": content}
        seen = Batch(loader=0, stream=STREAM, number=number, batch=0, ids=(0, 1, 2, 3), size=4, rows=rows)
        events += [Pass(loader=0, stream=STREAM, number=number), seen]
    return trace(events)


def test_data_that_another_run_has_not_are_made_anew() -> None:
    one = holding("a", "b", "c", "d")
    assert made_anew(one, holding("e", "f", "g", "h"))
    assert not made_anew(one, holding("a", "b", "c", "d"))
    assert not made_anew(one, Trace(()))
