"""Programs that break a rule about state, or seem to, as two ranks really run them."""

from pathlib import Path

import pytest

from lockstep.core.finding import Severity
from lockstep.rules.judge import judge
from lockstep.trace.trace import read_trace
from tests.commands import lockstep

PROGRAMS = Path(__file__).resolve().parent / "programs"

FOUND = {
    "buffers_not_broadcast": {"LS115", "LS116"},
    "early_stop_on_rank_0": {"LS209"},
    "load_on_rank_0_after_wrap": {"LS111"},
    "optimizer_state_on_rank_0": {"LS112"},
    "return_before_collective": {"LS113"},
    "right_every_rank_evaluates_all": {"LS116"},
    "right_frozen_batch_norm": set(),
    "right_roles_and_groups": set(),
    "right_skips_together": set(),
    "swapped_reductions": {"LS113"},
    "unequal_types": {"LS113"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_the_rules_find(name: str, tmp_path: Path) -> None:
    lockstep(tmp_path / "cwd", "run", "--record", str(tmp_path / "trace"), "--nproc", "2", str(PROGRAMS / f"{name}.py"))
    findings = judge(read_trace(tmp_path / "trace"))
    assert {finding.code for finding in findings if finding.severity is not Severity.NOTE} == FOUND[name]
    assert all(finding.place is not None and Path(finding.place.path).stem == name for finding in findings)


def test_every_program_is_told_what_it_breaks() -> None:
    assert {path.stem for path in PROGRAMS.glob("[a-z]*.py")} == set(FOUND)
