"""docs/what-is-caught.md says what the tests look for."""

from lockstep.rules import RULES
from tests.programs import catalog
from tests.proof.caught import GROUPS, REPO, page
from tests.proof.test_fault import WRONG
from tests.proof.test_programs import CAUSES
from tests.rules.test_state_programs import FOUND

KINDS = [kind for kinds in GROUPS.values() for kind in kinds]


def test_the_page_is_up_to_date() -> None:
    assert (REPO / "docs" / "what-is-caught.md").read_text(encoding="utf-8") == page()


def test_every_row_has_a_program_that_a_test_runs_for_that_code() -> None:
    for kind in KINDS:
        name = kind.shown.rpartition("/")[2].removesuffix(".py")
        assert (REPO / kind.shown).is_file()
        if kind.shown.startswith("tests/programs/wrong"):
            assert kind.code == (WRONG[name][0] if name in WRONG else CAUSES[name][4])
        elif kind.shown.startswith("tests/programs/pairs"):
            assert kind.code in catalog.named_file(f"pairs/{name}.py").expected
        elif kind.shown.startswith("tests/rules/programs"):
            assert kind.code in FOUND[name]


def test_every_rule_has_a_row() -> None:
    assert {rule.CODE for rule in RULES} <= {kind.code for kind in KINDS}
