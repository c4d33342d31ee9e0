from lockstep.rules.evidence.reducer import Before, Cause, Held, before_steps
from lockstep.trace.events import Event, GradCall, Raised
from tests.rules.gradient_runs import backward, forward, inner, optimizer, run, step, wrap


def befores(*events: Event) -> list[Before]:
    return list(before_steps(run(lambda rank: [wrap(), optimizer(), *events]).ranks[0]))


def cause(*events: Event) -> Cause | None:
    """Of the last backward before the first step that was not reduced."""
    local = befores(*events, step())[0].local
    return local[0].cause if local else None


def test_a_forward_through_the_wrapper_prepares_one_backward() -> None:
    assert cause(forward(), backward()) is None
    assert cause(forward(), forward(), backward()) is None
    assert cause(forward(), backward(), forward(), backward()) is None
    assert cause(forward(), backward(retain=True), backward()) is Cause.AGAIN
    assert cause(forward(), forward(), backward(), backward()) is Cause.AGAIN


def test_a_second_backward_over_something_else_is_none_of_this_model() -> None:
    assert cause(forward(), backward(), backward()) is None


def test_what_is_around_the_wrapper_stays_on_its_rank() -> None:
    assert cause(inner(), backward()) is Cause.BYPASSED
    assert cause(forward(grad=False), inner(), backward()) is Cause.BYPASSED
    assert cause(forward(), inner(), backward()) is None


def test_no_sync_counts_at_the_forward() -> None:
    assert cause(forward(sync=False), backward()) is Cause.NOT_SYNCED
    assert cause(forward(), backward(), forward(sync=False), backward()) is Cause.NOT_SYNCED
    assert cause(forward(sync=False), backward(), forward(), backward()) is None


def test_a_step_begins_anew() -> None:
    first, second = befores(inner(), backward(), step(0), forward(), backward(), step(1))
    assert first.local
    assert not second.local


def test_calls_of_autograd_grad_belong_to_the_next_step() -> None:
    call = GradCall(model=0, names=("head.weight",))
    first, second = befores(forward(), call, step(0), forward(), backward(), step(1))
    assert first.calls == (call,)
    assert second.calls == ()


def test_exceptions_are_moments_too() -> None:
    error = Raised(through="backward", error="RuntimeError: no")
    assert befores(forward(), backward(retain=True), backward(), error)[0].local[0].cause is Cause.AGAIN


def test_what_an_optimizer_holds() -> None:
    told = befores(forward(), backward(), step())[0].held["0/2"]
    assert (told.model, told.parameter, told.changed, told.expected_by) == (0, "head.weight", False, 0)
    frozen = Held("0/0", "0:w", 1, 0, True, True, "float32", "float32")
    assert frozen.changed
    assert frozen.expected_by == -1
    cast = Held("0/0", "0:w", 1, 0, True, False, "float32", "float64")
    assert cast.changed
    alone = Held("0/0", "", 1, -1, True, False, "", "float32")
    assert (alone.model, alone.parameter, alone.changed) == (-1, "0/0", False)
