"""The catalog knows every program, and the programs are what it says: short, plain PyTorch, of four kinds."""

import ast
import re

import pytest

from tests.programs.catalog import ABSTAIN, ERROR, HELD_BY_OTHERS, PASS, PROGRAMS, RIGHT, ROOT, Program, named

FOLDERS = ("right", "wrong", "pairs", "nasty")
FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_every_file_is_a_program_a_reference_or_a_part() -> None:
    known = {one.name for one in PROGRAMS} | {one.reference for one in PROGRAMS if one.reference} | {*HELD_BY_OTHERS}
    assert sorted(known) == FILES


def test_titles_are_unique() -> None:
    titles = [one.title for one in PROGRAMS]
    assert len(set(titles)) == len(titles)
    assert named("right/lr_scaled --batch-per-rank 8").args == ("--batch-per-rank", "8")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_what_is_expected_fits_the_folder(program: Program) -> None:
    folder = program.name.partition("/")[0]
    verdicts, faults = {PASS, ABSTAIN, ERROR}, re.compile(r"LS\d{3}|lemma:(mirror|shard|resume)|missed")
    for one in program.expected:
        assert one == RIGHT if folder == "right" else faults.fullmatch(one) or (folder == "nasty" and one in verdicts)
    assert program.expected
    assert program.launch in ("torchrun", "spawn")
    assert program.reference_path.exists()


@pytest.mark.parametrize("name", FILES)
def test_programs_are_short_and_plain(name: str) -> None:
    source = (ROOT / name).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 100
    assert "lockstep" not in source.lower()
    assert source.startswith('"""') or name in HELD_BY_OTHERS


def test_one_program_is_not_python() -> None:
    with pytest.raises(SyntaxError):
        ast.parse((ROOT / "nasty/syntax_error.py").read_text(encoding="utf-8"))
