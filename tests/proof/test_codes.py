"""Each code of the lemmas has a page in the form of the rules' pages, and is used."""

import re
from pathlib import Path

import pytest

from lockstep import proof
from lockstep.proof.codes import PAGES
from lockstep.rules import RULES

HEADINGS = ("What must hold:", "Why:", "How it shows:", "Fix:", "Example:")
SOURCE = Path(proof.__file__).parent


@pytest.mark.parametrize("code", PAGES)
def test_a_page_says_what_a_rule_s_page_says(code: str) -> None:
    name, page = PAGES[code]
    assert re.fullmatch("[a-z_]+", name)
    places = [page.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert page.splitlines()[0].endswith(".")
    assert page.splitlines()[1] == ""


def test_codes_are_nobody_else_s() -> None:
    assert not PAGES.keys() & {rule.CODE for rule in RULES}
    names = [name for name, _ in PAGES.values()]
    assert len(set(names)) == len(names)


def test_every_code_that_a_lemma_gives_has_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.glob("*.py") if path.name != "codes.py")
    used = set(re.findall(r"LS4(?:0[89]|1\d)", text))
    assert used == PAGES.keys()
