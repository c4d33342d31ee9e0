from lockstep.proof.align import Layout, layout, paired, parameter_names, samples, views
from lockstep.trace.events import Backward, Batch, Event, Optimizer, Step
from lockstep.trace.trace import RankTrace, Trace
from tests.rules.by_hand import trace

STREAM = "Data/32/32#0"


def batch(*ids: int, stream: str = STREAM, grad: bool = True, number: int = 0) -> Batch:
    return Batch(loader=0, stream=stream, number=number, batch=0, ids=ids, size=len(ids), grad=grad)


def step(number: int, optimizer: int = 0) -> Step:
    return Step(optimizer=optimizer, number=number)


def rank(*events: Event) -> RankTrace:
    return RankTrace(0, events)


def test_each_step_has_what_led_to_it() -> None:
    first, second = views(rank(batch(1), Backward(), step(0), batch(2), batch(3), step(1), Backward()))
    assert [first.key, second.key] == [(0, 0), (0, 1)]
    assert [one.ids for one in second.of(Batch)] == [(2,), (3,)]
    assert len(list(first.of(Backward))) == 1
    assert not list(second.of(Backward))


def test_steps_are_paired_by_optimizer_and_number() -> None:
    reference = rank(step(0), step(0, 1), step(1), step(1, 1))
    other = rank(step(0, 1), step(0), step(1))
    assert [(one.key, two.key) for one, two in paired(reference, other)] == [
        ((0, 0), (0, 0)),
        ((1, 0), (1, 0)),
        ((0, 1), (0, 1)),
    ]
    assert paired(reference, rank()) == []


def test_names_of_parameters() -> None:
    one = Optimizer(optimizer=0, kind="SGD", keys=("0/0", "0/1"), names=("0:fc.weight", ""))
    other = Optimizer(optimizer=1, kind="SGD", keys=("0/0",), names=("1:fc.weight",))
    assert parameter_names(rank(one)) == {(0, "0/0"): "fc.weight", (0, "0/1"): "parameter 0/1"}
    assert parameter_names(rank(one, other)) == {
        (0, "0/0"): "0:fc.weight",
        (0, "0/1"): "parameter 0/1",
        (1, "0/0"): "1:fc.weight",
    }


def test_the_layout_of_a_program_that_keeps_the_global_batch() -> None:
    reference = trace([batch(0, 1, 2, 3), step(0), batch(4, 5, 6, 7), step(1)])
    ranks = trace([batch(0, 1), step(0), batch(4, 5), step(1)], [batch(2, 3), step(0), batch(6, 7), step(1)])
    plan = layout(reference, ranks)
    assert (plan.batch_reference, plan.batch, plan.grow, plan.per, plan.whole) == (4, 4, 1, (1, 1), ())


def test_a_larger_global_batch() -> None:
    reference = trace([batch(0, 1), step(0)])
    plan = layout(reference, trace([batch(0, 1), step(0)], [batch(2, 3), step(0)], [batch(4, 5), step(0)]))
    assert (plan.batch, plan.grow) == (6, 3)


def test_accumulation_with_as_many_micro_batches() -> None:
    reference = trace([batch(0, 1), batch(2, 3), step(0)])
    plan = layout(reference, trace([batch(0), batch(2), step(0)], [batch(1), batch(3), step(0)]))
    assert (plan.micro_reference, plan.micro, plan.per, plan.grow) == (2, 2, (1, 1), 1)


def test_accumulation_divided_by_the_ranks() -> None:
    reference = trace([*[batch(0, 1)] * 4, step(0)])
    plan = layout(reference, trace(*[[*[batch(0, 1)] * 2, step(0)]] * 2))
    assert (plan.per, plan.batch, plan.grow) == ((2, 1), 8, 1)


def test_more_micro_batches_than_the_reference() -> None:
    plan = layout(trace([batch(0, 1, 2, 3), step(0)]), trace(*[[batch(0), batch(1), step(0)]] * 2))
    assert (plan.per, plan.grow) == ((1, 2), 1)


def test_a_global_batch_that_is_no_multiple() -> None:
    assert Layout(1, 1, 4, 3, 2).grow == 1
    assert Layout(1, 1, 0, 0, 2).grow == 1
    assert Layout(1, 0, 4, 0, 2).per == (1, 1)


def test_the_last_small_batch_of_an_epoch_and_left_over_micro_batches_do_not_count() -> None:
    events = [*[batch(0, 1, 2, 3), batch(0, 1, 2, 3), step(0)] * 3, batch(9), step(3)]
    plan = layout(trace(events), trace(events))
    assert (plan.micro_reference, plan.size_reference) == (2, 4)


def test_evaluation_and_a_second_optimizer_are_no_micro_batches() -> None:
    gan = [batch(0, 1), step(0, 0), step(0, 1), batch(5, grad=False), batch(2, 3), step(1, 0), step(1, 1)]
    assert layout(trace(gan), trace(gan)).micro_reference == 1


def test_two_loaders_read_side_by_side_are_one_micro_batch() -> None:
    both = [batch(0, 1), batch(0, 1, stream="Other/8/8#0"), step(0)]
    assert layout(trace(both), trace(both)).micro_reference == 1


def test_streams_that_are_read_whole() -> None:
    own = [[batch(0, 1)], [batch(2, 3)]]
    same = [batch(0, 1, stream="Same/4/4#0")]
    first_only = [batch(0, stream="First/4/4#0")]
    ranks = trace([*own[0], *same, *first_only, step(0)], [*own[1], *same, step(0)])
    assert set(layout(ranks, ranks).whole) == {"Same/4/4#0", "First/4/4#0"}


def test_no_batches_at_all() -> None:
    plan = layout(trace([step(0)]), trace([step(0)], [step(0)]))
    assert (plan.batch, plan.batch_reference, plan.grow, plan.per) == (0, 0, 1, (1, 1))
    assert layout(trace([]), Trace((rank(),))).batch == 0


def test_what_identifies_samples() -> None:
    assert samples(batch(4, 2)) == (4, 2)
    content = Batch(loader=0, stream=STREAM, number=0, batch=0, rows={"0": ("a", "b"), "1": ("c", "d")})
    assert samples(content) == (("a", "c"), ("b", "d"))
    assert samples(Batch(loader=0, stream=STREAM, number=0, batch=0)) == ()
