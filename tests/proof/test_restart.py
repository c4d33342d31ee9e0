"""Where a resumed run goes on, and what differs from there: traces made by hand."""

from pathlib import Path

from lockstep.core.outcome import Exit
from lockstep.launch.local import Outcome
from lockstep.launch.verdict import Verdict
from lockstep.proof.restart import Restart, compare, locate, strangers
from lockstep.proof.takes import Take
from lockstep.trace.events import Backward, Batch, Buffers, Event, Optimizer, Scaler, Step
from tests.rules.by_hand import trace


def run(first: int = 0, count: int = 6, **changed: object) -> list[Event]:
    """Steps from `first` on; the weights after n steps are `wn`. changed: what a step has instead, by its name."""
    events: list[Event] = [Optimizer(optimizer=0, kind="SGD", keys=("0/0", "0/1"), names=("0:a", "0:b"))]
    for number in range(count):
        done = first + number
        batch = Batch(loader=0, stream="s", number=0, batch=done, ids=(done,), step=number)
        values = {"lr": (0.1,), "before": weights(done), "grads": {"0/0": f"g{done}"}, "after": weights(done + 1)}
        if done == 4:
            values |= {key: value for key, value in changed.items() if key in values}
        scale = changed.get("scale", 8.0) if done == 4 else 8.0
        assert isinstance(scale, float)
        step = Step(optimizer=0, number=number, step=number, **values)  # type: ignore[arg-type]
        events += [batch, Backward(), step, Scaler(scale=scale)]
    return [*events, Buffers(model=0, when="end", digests={"mean": str(changed.get("mean", ""))})]


def weights(done: int) -> dict[str, str]:
    return {"0/0": f"w{done}", "0/1": f"v{done}"}


def take(*ranks: list[Event]) -> Take:
    return Take("a", trace(*ranks), Path(), Outcome(Verdict("", Exit.DONE), (), ()))


UNBROKEN = take(run(), run())


def test_the_step_after_which_the_weights_are_the_same() -> None:
    resumed = take(run(3, 3))
    assert locate(UNBROKEN.trace.ranks[0], resumed.trace.ranks[0], 3) == Restart({0: 3})
    assert locate(UNBROKEN.trace.ranks[0], UNBROKEN.trace.ranks[0], 3) == Restart({0: 0})
    assert locate(UNBROKEN.trace.ranks[0], take(run(20, 2)).trace.ranks[0], 3) is None


def test_a_part_of_the_weights_is_not_the_saved_one() -> None:
    resumed = run(3, 3)
    first = next(event for event in resumed if isinstance(event, Step))
    object.__setattr__(first, "before", {**weights(3), "0/1": "fresh"})
    assert strangers(UNBROKEN.trace.ranks[0], take(resumed).trace.ranks[0]) == (3, ["b"], 2)


def test_equal_steps() -> None:
    result = compare(UNBROKEN, take(run(3, 3), run(3, 3)), Restart({0: 3}))
    assert (result.steps, result.differences) == (3, ())


def test_what_differs_is_named_by_its_step() -> None:
    for name, value, kinds in (
        ("lr", (0.2,), {"lr"}),
        ("grads", {"0/0": "other"}, {"gradient"}),
        ("after", weights(9), {"parameter"}),
    ):
        result = compare(UNBROKEN, take(run(3, 3), run(3, 3, **{name: value})), Restart({0: 3}))
        assert (result.kinds, result.differences[0].step, result.differences[0].rank) == (kinds, 4, 1)
    scaled = compare(UNBROKEN, take(run(3, 3, scale=4.0), run(3, 3)), Restart({0: 3}))
    assert scaled.kinds == {"scale"}


def test_ends() -> None:
    longer = take(run(3, 5), run(3, 5))
    assert compare(UNBROKEN, longer, Restart({0: 3})).kinds == {"steps"}
    assert compare(UNBROKEN, longer, Restart({0: 3}), ends=False).differences == ()
    buffers = take(run(3, 3, mean="other"), run(3, 3))
    assert compare(UNBROKEN, buffers, Restart({0: 3})).kinds == {"buffer"}
