from lockstep.core.finding import Place
from lockstep.rules.evidence.state import (
    both_sides,
    differing,
    ended,
    finished,
    held,
    number_of,
    place,
    replicated,
    same_steps,
    titles,
)
from lockstep.trace.events import End
from tests.rules.state_runs import CRASHED, RETURNED, model, optimizer, run, step, trained


def test_steps_of_ranks_are_paired_as_far_as_all_have_come() -> None:
    trace = run([step(0), step(1), step(0, of=1)], [step(0), step(0, of=1)])
    assert [(one.optimizer, one.number, other.number) for one, other in same_steps(trace)] == [(0, 0, 0), (1, 0, 0)]


def test_parameters_by_name_whatever_the_model_s_number() -> None:
    trace = run([model(0), optimizer(of=0)], [model(1), optimizer(of=1)])
    assert [one.name for one in replicated(trace)[0].values()] == ["0.weight", "0.bias"]


def test_what_is_sharded_or_differs_is_not_replicated() -> None:
    sharded = run([model(0, "FSDPNet"), optimizer()], [model(0, "FSDPNet"), optimizer()])
    assert not replicated(sharded)[0]
    sized = run([model(), optimizer(sizes=(8, 2))], [model(), optimizer(sizes=(9, 2))])
    assert list(replicated(sized)[0]) == ["0/1"]
    alone = run([model(), optimizer()], [model()])
    assert not replicated(alone)[0]


def test_what_was_told_last_holds() -> None:
    trace = run([model(), optimizer(), optimizer(names=("0.weight", ""))], [])
    assert [one.title for one in held(trace.ranks[0])[0].values()] == ["0.weight", "parameter 0/1"]


def test_differing_needs_all_sides() -> None:
    assert differing([{"a": "1", "b": "1"}, {"a": "2"}], ("a", "b")) == ("a",)
    assert not differing([{"a": "1"}, {"a": "1"}], ("a",))


def test_words() -> None:
    parameters = replicated(run([model(), optimizer()], [model(), optimizer()]))[0]
    assert titles(("0/0",), parameters) == "1 of 2 parameters (0.weight)"
    assert titles(("0/0", "0/1", "0/0", "0/1"), parameters).endswith("(0.weight, 0.bias, 0.weight, ...)")
    assert (number_of(1, "step"), number_of(2, "step")) == ("1 step", "2 steps")


def test_ends() -> None:
    trace = run([RETURNED], [CRASHED], [End(how="exited", code=3)], [])
    assert [finished(rank) for rank in trace.ranks] == [True, False, False, False]
    sides = [ended(rank, "over") for rank in trace.ranks]
    assert [side.place for side in sides] == [None, Place("train.py", 9), None, None]
    assert [side.rank for side in sides] == [0, 1, 2, 3]


def test_both_sides_have_rank_step_and_place() -> None:
    trace = run(trained(0), trained(0))
    sides = both_sides(trace, next(same_steps(trace)), lambda index: f"side {index}")
    assert [(side.text, side.rank, side.step, side.place) for side in sides] == [
        ("side 0", 0, 0, Place("train.py", 8)),
        ("side 1", 1, 0, Place("train.py", 8)),
    ]
    assert place(None) is None
