"""All rules over one run: what they found, without what another finding explains."""

from collections.abc import Collection, Iterable, Sequence

from lockstep.core.finding import Finding, Severity
from lockstep.rules import RULES
from lockstep.rules.rule import Rule
from lockstep.trace.trace import Trace


def judge(trace: Trace, rules: Sequence[Rule] = RULES, accepted: Collection[str] = ()) -> tuple[Finding, ...]:
    """What this run shows, errors first.

    A rule's finding is left out where a rule that it comes AFTER has found an error or a deviation itself; a deviation
    that is accepted explains nothing.
    """
    found = {rule.CODE: tuple(rule.dynamic(trace)) for rule in rules if trace.num_ranks >= rule.NEED}
    serious = {code for code, findings in found.items() if _serious(findings, code in accepted)}
    kept = [
        finding
        for rule in rules
        if rule.CODE in found and not serious & (set(rule.AFTER) - {rule.CODE})
        for finding in found[rule.CODE]
    ]
    order = list(Severity)
    return tuple(sorted(kept, key=lambda finding: (order.index(finding.severity), finding.code)))


def _serious(findings: Iterable[Finding], accepted: bool) -> bool:
    mild = (Severity.NOTE, Severity.DEVIATION) if accepted else (Severity.NOTE,)
    return any(finding.severity not in mild for finding in findings)
