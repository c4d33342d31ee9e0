"""One block of plain words for all ranks, and the advice that fits."""

import math

from lockstep.runtime.triage.finding import Finding, Outcome
from lockstep.runtime.triage.remedy import Remedy
from lockstep.runtime.triage.words import Past, advice, block

NONE = Remedy((), False)


def finding(module: str | None = "a.b", largest: float = 3.0, **changed: str) -> Finding:
    values = {"direction": "forward", "kind": "Linear", "operation": "linear", "value": "nan", "dtype": "float16"}
    return Finding(module=module, largest=largest, line="x.py:3: y = f(x)", **{**values, **changed})  # type: ignore[arg-type]


def bad(**values: object) -> Outcome:
    return Outcome(**{"finite": False, "loss": math.nan, **values})  # type: ignore[arg-type]


def test_ranks_that_found_the_same_place_are_one_line() -> None:
    outcomes = [bad(finding=finding(value="inf", largest=9.0)), bad(), bad(finding=finding())]
    assert block(outcomes, NONE, []) == [
        "ranks 0, 2: first in forward, `linear` in a.b (Linear) makes inf/nan (float16) of finite numbers, "
        "the largest 9",
        "  at x.py:3: y = f(x)",
    ]


def test_backward_in_the_loss_of_a_later_micro_batch() -> None:
    lines = block([bad(finding=finding(None, direction="backward"), micro=2)], NONE, [])
    assert lines[0].startswith("rank 0, micro-batch 2: forward is finite; in backward, `linear` in the loss first")


def test_weights_batches_and_what_was_in_the_way() -> None:
    outcomes = [bad(weights=tuple("fedcba")), bad(batch_holds="x holds nan"), bad(error="ValueError: no")]
    assert block(outcomes, NONE, []) == [
        "before the step: not finite are a, b, c, d and 2 more of the model itself",
        "rank 1: the batch: x holds nan",
        "rank 2: the step could not be run again to look (ValueError: no)",
    ]


def test_nothing_found() -> None:
    assert "only their sum over ranks, or its norm, is not" in block([Outcome()], NONE, [])[0]
    assert block([bad()], NONE, []) == ["run again, no single operation is at fault"]


def test_history_and_what_was_tried() -> None:
    past = [Past(3, 0.5, 8.0), Past(4, math.nan, 4.0)]
    assert block([bad()], Remedy(("a", "b"), True), past)[1:] == [
        "loss of steps 3 to 4: 0.5, nan",
        "loss scale of steps 3 to 4: 8, 4",
        "tried: with a, b in float32 the step is finite",
    ]
    assert block([bad()], Remedy(("a",), False), past[:1])[1:] == [
        "loss of step 3: 0.5",
        "loss scale of step 3: 8",
        "tried: with a in float32 the step is not finite either",
    ]
    assert block([bad()], NONE, [Past(3, 0.5, 1.0)])[1:] == ["loss of step 3: 0.5"]


def test_the_advice_is_what_was_shown_to_help() -> None:
    usual = "look at these samples; lower optim.lr, or set optim.clip_norm"
    assert advice([bad()], Remedy(("a", "b"), True)) == "precision.fp32_modules=[a,b]"
    assert advice([bad(finding=finding())], Remedy(("a",), False)) == usual
    scale = Remedy((), False, scale_only=True)
    assert "each such step halves the loss scale" in advice([bad(finding=finding())], scale)
    assert block([bad()], scale, [])[1:] == [
        "tried: with a loss scale of 1 the step is finite: the scale has yet to come down"
    ]
    assert "checkpoint from before" in advice([bad(weights=("a",), finding=finding())], NONE)
    assert "`lockstep scan`" in advice([bad(batch_holds="x holds nan")], NONE)
    assert advice([bad(batch_holds="x holds nan", finding=finding())], NONE) == usual
    assert "the numbers are large" in advice([bad(finding=finding(largest=1e5))], NONE)
