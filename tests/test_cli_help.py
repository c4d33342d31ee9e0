"""Help reads well: groups in the order of a first day, one line a verb, nothing cut or wider than a terminal."""

import re
from typing import Any

import pytest
import typer

from lockstep.cli import app
from lockstep.cli_help import ORDER, first_sentence
from lockstep.cli_page import WIDTH

ROOT: Any = typer.main.get_command(app)


def helps() -> dict[str, str]:
    """The help of every verb, by its words."""
    context = ROOT.make_context("lockstep", [], resilient_parsing=True, terminal_width=WIDTH)
    found = {"lockstep": ROOT.get_help(context)}
    for name, verb in ROOT.commands.items():
        own = verb.make_context(name, [], parent=context, resilient_parsing=True)
        found[name] = verb.get_help(own)
        for inner, below in getattr(verb, "commands", {}).items():
            found[f"{name} {inner}"] = below.get_help(below.make_context(inner, [], parent=own, resilient_parsing=True))
    return found


HELPS = helps()


def headings(text: str) -> list[str]:
    return re.findall(r"^(\S.*):$", text, re.MULTILINE)


def test_verbs_stand_in_groups_that_tell_the_story() -> None:
    assert headings(HELPS["lockstep"]) == [*ORDER, "Options", "Examples", "Exit codes"]
    verbs = re.findall(r"^  ([a-z]+)  +[A-Z]", HELPS["lockstep"].partition("Options:")[0], re.MULTILINE)
    assert verbs == ["init", "train", "scan", "verify", "run", "doctor", "submit", "ckpt", "schema", "completion"]
    assert set(verbs) == set(ROOT.commands)


def test_a_verb_is_one_line() -> None:
    for verb in ROOT.commands.values():
        assert len(first_sentence(verb)) <= WIDTH - 2 - len("completion") - 2


@pytest.mark.parametrize("name", HELPS)
def test_it_fits_and_nothing_is_cut(name: str) -> None:
    lines = HELPS[name].splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "..." not in re.sub(r"\]?\.\.\.|VERB \.\.\.|\(.*?\.\.\.\)", "", HELPS[name])
    assert "x>=" not in HELPS[name] and "TEXT]" not in HELPS[name]


@pytest.mark.parametrize("name", [name for name in HELPS if " " not in name])
def test_every_verb_has_examples(name: str) -> None:
    examples = HELPS[name].partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert 1 <= len(examples) <= 4 and all("lockstep " in line for line in examples)


def test_options_stand_in_groups() -> None:
    assert headings(HELPS["train"])[:4] == ["Arguments", "Options", "Ranks and machines", "When something fails"]
    assert "Usage: lockstep train [OPTIONS] [CONFIG] [KEY=VALUE]...\n" in HELPS["train"]
    assert "--show K               Bad samples of each kind that are listed (10)." in HELPS["scan"]
