import subprocess
import sys
from pathlib import Path

from lockstep.runtime.config.describe import config_page
from lockstep.runtime.config.fields import fields

PAGE = Path(__file__).resolve().parents[3] / "docs" / "config.md"


def test_the_page_is_up_to_date() -> None:
    hint = "python -m lockstep.runtime.config.describe > docs/config.md"
    assert PAGE.read_text(encoding="utf-8") == config_page(), hint


def test_the_command_prints_the_page() -> None:
    command = [sys.executable, "-m", "lockstep.runtime.config.describe"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == config_page()


def test_every_field_has_a_row() -> None:
    rows = [line for line in config_page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(fields())
    assert all(row.count("|") == 5 for row in rows)
