"""Which samples a resumed run reads: traces made by hand."""

from lockstep.proof.reread import begun, point, reread
from lockstep.trace.events import Batch, Event, Pass, PassEnd, SetEpoch, Step
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace

STREAM = "Set/8/8#0"


def run(*passes: list[list[int]], first_epoch: int = 0, skip: int = 0) -> Trace:
    """One rank; a pass is its batches, each an optimizer step; the first `skip` batches are only passed over."""
    events: list[Event] = []
    step = 0
    for number, batches in enumerate(passes):
        epoch = first_epoch + number
        events.append(SetEpoch(sampler="S", value=epoch, step=step))
        events.append(Pass(loader=0, stream=STREAM, number=number, epoch=epoch, step=step))
        for index, ids in enumerate(batches):
            events.append(Batch(loader=0, stream=STREAM, number=number, batch=index, ids=tuple(ids), step=step))
            if number or index >= skip:
                events.append(Step(optimizer=0, number=step, step=step + 1))
                step += 1
        events.append(PassEnd(loader=0, stream=STREAM, number=number, batches=len(batches), step=step))
    return trace(events)


FIRST, SECOND = [[0, 1], [2, 3], [4, 5], [6, 7]], [[7, 0], [1, 6], [3, 4], [2, 5]]
UNBROKEN = run(FIRST, SECOND)


def test_where_a_run_stands() -> None:
    here = point(UNBROKEN.ranks[0], 5)
    assert here is not None
    assert (here.stream, here.number, here.batch) == (STREAM, 1, 1)
    assert begun(UNBROKEN.ranks[0], 4) == ((STREAM, 1, 0),)
    assert begun(UNBROKEN.ranks[0], 0) == ((STREAM, 0, 0),)


def test_the_same_samples() -> None:
    assert reread(UNBROKEN, run(SECOND, first_epoch=1), 4).kind == "same"


def test_batches_that_are_passed_over_are_not_read_again() -> None:
    assert reread(UNBROKEN, run(SECOND, first_epoch=1, skip=2), 6).kind == "same"


def test_a_sampler_that_starts_where_the_save_was() -> None:
    assert reread(UNBROKEN, run(SECOND[2:], first_epoch=1), 6).kind == "same"


def test_the_first_epoch_again() -> None:
    found = reread(UNBROKEN, run(FIRST), 4)
    assert found.kind == "again"
    assert "reads pass 0 again" in found.text and "set_epoch(0) instead of set_epoch(1)" in found.text


def test_an_epoch_begun_anew() -> None:
    found = reread(UNBROKEN, run(SECOND, first_epoch=1), 6)
    assert found.kind == "lost"
    assert "begins pass 1 anew, of which 2 batches" in found.text


def test_one_batch_too_many_is_passed_over() -> None:
    found = reread(UNBROKEN, run(SECOND, first_epoch=1, skip=3), 6)
    assert found.kind == "lost"
    assert "reads 0 samples again and leaves 2 out" in found.text


def test_another_order_of_the_whole_epoch() -> None:
    assert reread(UNBROKEN, run([[5, 2], [0, 7], [6, 1], [4, 3]], first_epoch=1), 4).kind == "shuffled"


def test_another_order_in_mid_epoch_loses_samples() -> None:
    found = reread(UNBROKEN, run([[5, 2], [0, 7], [6, 1], [4, 3]], first_epoch=1, skip=2), 6)
    assert found.kind == "lost"
    assert "reads 2 samples again and leaves 2 out" in found.text


def test_no_loader() -> None:
    assert reread(trace([Step(optimizer=0, number=0, step=1)]), UNBROKEN, 0).kind == "none"
