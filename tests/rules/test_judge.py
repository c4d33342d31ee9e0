"""All rules over one run: what is left out, and in what order the rest comes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from lockstep.core.finding import Finding, Severity
from lockstep.rules import RULES
from lockstep.rules.judge import judge
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace


def _rule(code: str, severity: Severity | None, after: tuple[str, ...] = (), need: int = 1) -> Any:
    def dynamic(run: Trace) -> Iterator[Finding]:
        assert run.num_ranks >= need, "asked with too few ranks"
        if severity is not None:
            yield Finding(code, severity, "seen", "must", "next")

    return SimpleNamespace(CODE=code, AFTER=after, NEED=need, dynamic=dynamic)


def _codes(*rules: Any, num_ranks: int = 2) -> list[str]:
    return [finding.code for finding in judge(trace(*[[]] * num_ranks), rules)]


def test_errors_come_first_then_in_order_of_codes() -> None:
    rules = [_rule("LS3", Severity.NOTE), _rule("LS2", Severity.ERROR), _rule("LS1", Severity.ERROR)]
    assert _codes(*rules, _rule("LS0", Severity.DEVIATION)) == ["LS1", "LS2", "LS0", "LS3"]


def test_what_another_finding_explains_is_left_out() -> None:
    consequence = _rule("LS2", Severity.ERROR, after=("LS1",))
    assert _codes(consequence, _rule("LS1", Severity.ERROR)) == ["LS1"]
    assert _codes(consequence, _rule("LS1", Severity.DEVIATION)) == ["LS1"]
    assert _codes(consequence, _rule("LS1", Severity.NOTE)) == ["LS2", "LS1"], "a note explains nothing"
    assert _codes(consequence, _rule("LS1", None)) == ["LS2"]


def test_a_finding_that_is_left_out_still_explains_others() -> None:
    chain = [
        _rule("LS1", Severity.ERROR),
        _rule("LS2", Severity.ERROR, ("LS1",)),
        _rule("LS3", Severity.ERROR, ("LS2",)),
    ]
    assert _codes(*chain) == ["LS1"]


def test_a_rule_does_not_hide_itself() -> None:
    assert _codes(_rule("LS1", Severity.ERROR, after=("LS1",))) == ["LS1"]


def test_a_rule_is_asked_only_with_the_ranks_that_it_needs() -> None:
    rules = [_rule("LS1", Severity.ERROR, need=2), _rule("LS2", Severity.ERROR)]
    assert _codes(*rules, num_ranks=1) == ["LS2"]
    assert _codes(*rules) == ["LS1", "LS2"]


def test_a_run_in_which_nothing_happened_is_judged_by_every_rule() -> None:
    for num_ranks in (1, 2, 3):
        judge(trace(*[[]] * num_ranks))
        judge(trace(*[[]] * num_ranks, cut="time", how="raised"))


def test_rules_do_not_hide_each_other() -> None:
    after = {rule.CODE: set(rule.AFTER) - {rule.CODE} for rule in RULES}
    left = set(after)
    while free := {code for code in left if not after[code] & left}:
        left -= free
    assert not left, f"each of these is left out for another of them: {sorted(left)}"
