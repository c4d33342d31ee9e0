from collections.abc import Sequence

from lockstep.rules import same_parameters
from lockstep.trace.events import Event, Step
from lockstep.trace.trace import Trace
from tests.rules.state_runs import model, optimizer, run, step


def ranks(*steps: Sequence[Step]) -> Trace:
    return run(*([model(), optimizer(), *mine] for mine in steps))


def seen(trace: Trace) -> list[str]:
    return [finding.seen for finding in same_parameters.dynamic(trace)]


def test_a_change_between_steps_is_told_where_values_before_are_known() -> None:
    trace = ranks(
        [step(0, "aa", before="00"), step(1, "bb", before="aa")],
        [step(0, "aa", before="00"), step(1, "cc", before="x")],
    )
    (said,) = seen(trace)
    assert said.startswith("between step 0 and step 1, 1 of 2 parameters (0.weight) differ between ranks")
    assert said.endswith("they were changed outside of the optimizer.")


def test_a_change_by_the_optimizer_itself() -> None:
    (said,) = seen(ranks([step(0, "aa", before="00")], [step(0, "bb", before="00")]))
    assert "after step 0" in said and "the optimizer's own state or settings differ" in said


def test_without_values_before_both_are_possible() -> None:
    (said,) = seen(ranks([step(0), step(1, "bb")], [step(0), step(1, "cc")]))
    assert said.endswith("so weights or the optimizer's state were changed by hand since step 0.")


def test_other_differences_of_the_step_are_named() -> None:
    (said,) = seen(ranks([step(0, "aa", grads="g0")], [step(0, "bb", grads="g1")]))
    assert said.endswith("the gradients of this step differed.")
    (said,) = seen(ranks([step(0, "aa", lr=[0.1])], [step(0, "bb", lr=[0.2])]))
    assert said.endswith("the learning rates differed.")


def test_only_the_first_drift_of_an_optimizer() -> None:
    trace = ranks([step(0, "aa"), step(1, "bb")], [step(0, "cc"), step(1, "dd")])
    (finding,) = same_parameters.dynamic(trace)
    assert [(side.rank, side.step) for side in finding.witnesses] == [(0, 0), (1, 0)]


def test_left_alone() -> None:
    assert not seen(ranks([step(0), step(1, "bb")], [step(0), step(1, "bb")]))
    assert not seen(ranks([step(0), step(1, "bb")], [step(0)])), "one rank was cut"
    start = [step(0, "aa", before="00"), step(1, "bb")], [step(0, "cc", before="01"), step(1, "dd")]
    assert not seen(ranks(*start)), "ranks that start apart are another rule's"
    sharded: list[list[Event]] = [[model(0, "FSDPNet"), optimizer(), step(0, digest)] for digest in ("aa", "bb")]
    assert not seen(run(*sharded))


def test_it_speaks_after_all_that_explain_it() -> None:
    assert {"LS101", "LS111", "LS118", "LS119", "LS406"} <= set(same_parameters.AFTER)
    assert same_parameters.CODE not in same_parameters.AFTER
