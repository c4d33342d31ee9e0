"""Every rule's twins: `before.py` fires exactly that rule on two ranks, `after.py` is silent and proven."""

from pathlib import Path

import pytest

from lockstep.rules import RULES
from lockstep.rules.judge import judge
from lockstep.rules.pages import pages
from lockstep.rules.rule import Rule
from lockstep.trace.trace import read_trace
from tests.commands import lockstep
from tests.proof.proving import prove

TWINS = Path(__file__).resolve().parents[2] / "twins"
NAMES = {code: name for code, (name, _) in pages().items()}
NODES = ("LS303",)
"""Seen only where ranks are on several nodes."""
MIRRORLESS: dict[str, str] = {}
FAST = ("LS101", "LS201", "LS301", "LS401")
CASES = [pytest.param(rule, id=rule.CODE, marks=() if rule.CODE in FAST else pytest.mark.slow) for rule in RULES]


def test_every_rule_has_twins_and_every_twin_a_rule() -> None:
    folders = {path.name for path in TWINS.iterdir() if path.is_dir()}
    assert folders == set(NAMES.values())
    for name in folders:
        assert {path.name for path in (TWINS / name).glob("*.py")} >= {"before.py", "after.py"}


def test_codes_are_in_order_and_name_their_law() -> None:
    codes = [rule.CODE for rule in RULES]
    assert codes == sorted(set(codes))
    laws = {"1": "SAME", "2": "SPLIT", "3": "ONCE", "4": "SCALE"}
    assert all(laws[rule.CODE[2]] == rule.LAW for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.CODE)
def test_a_page_has_its_parts(rule: Rule) -> None:
    for heading in ("What must hold", "Why", "How it shows", "Fix", "Example"):
        assert heading in (rule.__doc__ or ""), heading


@pytest.mark.parametrize("rule", CASES)
def test_before_fires_exactly_its_rule(rule: Rule, tmp_path: Path) -> None:
    assert fired(TWINS / NAMES[rule.CODE] / "before.py", tmp_path, rule.CODE in NODES) == {rule.CODE}


@pytest.mark.parametrize("rule", CASES)
def test_after_is_silent_and_proven(rule: Rule, tmp_path: Path) -> None:
    after = TWINS / NAMES[rule.CODE] / "after.py"
    proven = prove(tmp_path / "proof", after)
    assert proven.done.code == 0, proven.done.output
    assert proven.codes() == set()
    assert fired(after, tmp_path, nodes=False, ranks=1) == set()
    if rule.CODE in NODES:
        assert fired(after, tmp_path, nodes=True) == set()


def fired(script: Path, folder: Path, nodes: bool, ranks: int = 2) -> set[str]:
    """Codes that the rules find in a recorded run."""
    trace, work = folder / f"trace-{script.stem}-{ranks}-{nodes}", folder / f"work-{script.stem}-{ranks}-{nodes}"
    options = ["--nodes"] if nodes else []
    lockstep(work, "run", "--record", str(trace), "--nproc", str(ranks), *options, str(script))
    return {finding.code for finding in judge(read_trace(trace))}
