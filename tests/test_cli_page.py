"""The page of the command line is the one that the verbs make."""

from pathlib import Path

from lockstep.cli_page import command_page

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == command_page(), "python -m lockstep.cli_page > docs/command-line.md"
