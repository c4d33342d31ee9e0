"""Evaluations in a trace."""

from lockstep.rules.evidence.scale import evaluations, numbers, shared_out
from lockstep.trace.events import Batch, Forward, Loader, Pass
from tests.rules.by_hand import evaluation, reduced, said, steps, trace


def test_what_lies_between_an_evaluation_and_the_next_step() -> None:
    run = [*steps(), *evaluation(range(8)), reduced([1.0]), said("a"), *steps(), reduced([2.0]), said("b")]
    ((zero, one),) = evaluations(trace(run, run))
    assert zero.size == 8 and zero.samples == tuple(range(8))
    assert [call.given for call in zero.reductions] == [(1.0,)]
    assert [event.text for event in one.said] == ["a"]


def test_a_pass_that_the_script_leaves_early() -> None:
    run = [*evaluation(range(8))[:-1], said("a"), *steps()]
    ((zero, _),) = evaluations(trace(run, run))
    assert zero.size == 8 and [event.text for event in zero.said] == ["a"]


def test_a_training_pass_is_none() -> None:
    run = evaluation(range(8))
    run.insert(3, steps()[0])
    assert not list(evaluations(trace(run, run)))


def test_shares_by_rows_and_by_the_sampler() -> None:
    def one_pass(rows: tuple[str, ...]) -> list:
        own = {"loader": 0, "stream": "S", "number": 0}
        batch = Batch(batch=0, size=2, rows={"0": rows} if rows else {}, grad=False, **own)
        return [Pass(grad=False, **own), batch, Forward(model=0, via="plain", grad=False)]

    different = trace(one_pass(("a", "b")), one_pass(("c", "d")))
    equal = trace(one_pass(("a", "b")), one_pass(("a", "b")))
    loader = Loader(loader=0, stream="S", sampler_ranks=2, ids=False)
    unknown = trace([loader, *one_pass(())], [loader, *one_pass(())])
    for run, wanted in ((different, True), (equal, False), (unknown, True)):
        (ranks,) = evaluations(run)
        assert shared_out(run, ranks) is wanted


def test_numbers_in_words() -> None:
    assert [value for value, _ in numbers("epoch 3: loss 0.52, lr 1.0e-3 v1.2.3")][:2] == [0.52, 0.001]
    assert abs(numbers("0.52")[0][1] - 0.005) < 1e-4
