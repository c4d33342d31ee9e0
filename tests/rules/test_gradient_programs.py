"""Programs that break a rule about gradients, or seem to, as two ranks really run them."""

from pathlib import Path

import pytest

from lockstep.core.finding import Severity
from lockstep.rules.judge import judge
from lockstep.trace.trace import read_trace
from tests.commands import lockstep

PROGRAMS = Path(__file__).with_name("gradient_programs.py")
FOUND = {
    "part_called": "LS101",
    "inner_after_evaluation": "LS101",
    "adversarial_bypassed": "LS101",
    "copy_reduced": "LS102",
    "group_of_one": "LS102",
    "left_over": "LS103",
    "no_sync_around_forward": "LS103",
    "two_forwards_two_backwards": "LS104",
    "refused": "LS104",
    "branch_by_rank": "LS105",
    "swallowed": "LS105",
    "added": "LS106",
    "replaced": "LS106",
    "replaced_and_advised": "LS106",
    "cast": "LS106",
    "second_network": "LS107",
    "penalty": "LS108",
    "copied": "LS109",
    "noise_by_rank": "LS112",
}
RIGHT = (
    "right_inner_after_wrapper",
    "right_left_over",
    "right_static_graph",
    "right_adversarial",
    "right_adversarial_inner",
    "right_closure",
    "right_shards",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FOUND, *RIGHT])
def test_what_the_rules_find(name: str, tmp_path: Path) -> None:
    lockstep(tmp_path / "cwd", "run", "--record", str(tmp_path / "trace"), "--nproc", "2", str(PROGRAMS), name)
    trace = read_trace(tmp_path / "trace")
    findings = judge(trace)
    serious = [finding for finding in findings if finding.severity is not Severity.NOTE]
    assert [finding.code for finding in serious] == ([FOUND[name]] if name in FOUND else [])
    assert all(finding.place is not None and Path(finding.place.path).name == PROGRAMS.name for finding in serious)
    if name in RIGHT:
        assert [rank.end.how for rank in trace.ranks if rank.end is not None] == ["returned", "returned"]
