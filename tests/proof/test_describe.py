"""docs/rules.md is what the rules say about themselves."""

from pathlib import Path

from lockstep.proof.codes import PAGES
from lockstep.proof.describe import rules_page
from lockstep.rules.pages import pages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == rules_page()


def test_every_code_has_its_section_with_all_parts() -> None:
    text = rules_page()
    for code, (name, _) in {**pages(), **PAGES}.items():
        section = text.partition(f"## {code} {name}\n")[2].partition("\n## ")[0]
        for heading in ("What must hold", "Why", "How it shows", "Fix", "Example"):
            assert f"*{heading}.*" in section, (code, heading)
