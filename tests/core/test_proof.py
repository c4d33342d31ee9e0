"""What a proof concludes from its rungs."""

import pytest

from lockstep.core.finding import Finding, Severity
from lockstep.core.outcome import Exit
from lockstep.core.proof import Proof, Rung, Status


def _proof(*rungs: Rung) -> Proof:
    return Proof("train.py", "train.py alone", 2, rungs)


def _rung(status: Status, *findings: Finding, covered: bool = False) -> Rung:
    return Rung("shard", status, "said", findings=findings, covered=covered)


def _finding(code: str, severity: Severity) -> Finding:
    return Finding(code, severity, "seen", "must", "next")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([Status.PASS, Status.PASS], Exit.DONE),
        ([Status.PASS, Status.ABSTAIN], Exit.UNJUDGED),
        ([Status.ABSTAIN, Status.FAIL], Exit.FAILED),
        ([Status.ERROR], Exit.FAILED),
        ([], Exit.UNJUDGED),
    ],
)
def test_the_exit_code(statuses: list[Status], code: Exit) -> None:
    assert _proof(*map(_rung, statuses)).exit is code


def test_a_rung_that_a_later_one_proves_is_no_gap() -> None:
    assert _proof(_rung(Status.ABSTAIN, covered=True), _rung(Status.PASS)).exit is Exit.DONE
    assert _proof(_rung(Status.ABSTAIN, covered=True), _rung(Status.ABSTAIN)).exit is Exit.UNJUDGED


def test_the_first_broken_rung_is_named() -> None:
    rungs = [_rung(Status.ABSTAIN), _rung(Status.ERROR), _rung(Status.FAIL)]
    assert _proof(*rungs).broken is rungs[1]
    assert _proof(_rung(Status.PASS)).broken is None


def test_findings_of_all_rungs_come_once_and_errors_first() -> None:
    note, error = _finding("LS117", Severity.NOTE), _finding("LS401", Severity.ERROR)
    deviation, other = _finding("LS116", Severity.DEVIATION), _finding("LS101", Severity.ERROR)
    proof = _proof(_rung(Status.PASS, note, error), _rung(Status.PASS, error, deviation, other))
    assert proof.findings == (other, error, deviation, note)


def test_findings_alone_do_not_fail_a_proof() -> None:
    assert _proof(_rung(Status.PASS, _finding("LS101", Severity.ERROR))).exit is Exit.DONE
