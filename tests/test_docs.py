"""The docs name what there is: links, paths, config fields, commands, library names; their Python compiles."""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep.runtime
from lockstep.cli import app, with_optional_values
from lockstep.recipes.options import check_options
from lockstep.recipes.resolve import recipe_class
from lockstep.runtime.config import load_config
from lockstep.runtime.config.fields import fields, sections

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPO.glob("*.md"), *REPO.glob("docs/*.md"), *REPO.glob("bench/*.md")])
ROOTS = "docs|examples|tests|bench|src|twins"
PARTS = "core|launch|proof|recipes|rules|runtime|trace"  # of src/lockstep, as ARCHITECTURE.md names them
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(REPO).as_posix()


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [body for _, said, body in FENCE.findall(text(page)) if said == language]


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        headings = re.findall(r"^#+ (.*)$", text(target), re.MULTILINE) if anchor and target.is_file() else []
        if not target.exists() or (anchor and anchor not in map(slug, headings)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_exist(page: Path) -> None:
    named = re.findall(rf"(?<![\w./<-])(?:\.\./)?((?:{ROOTS})/[\w./-]*[\w/])", text(page))
    missing = [path for path in named if not (REPO / path).exists()]
    named = re.findall(rf"`((?:{PARTS})/[\w./-]*)`", text(page))
    missing += [path for path in named if not (REPO / "src" / "lockstep" / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_config_fields_exist(page: Path) -> None:
    named = re.findall(r"`(?:\w+ )*?([a-z_]+\.[a-z_]+)(?:=[^`]*)?`", text(page))
    unknown = [field for field in named if field.split(".")[0] in sections() and field not in fields()]
    assert not [field for field in unknown if not field.endswith((".py", ".md", ".yaml", ".safetensors"))]


def commands(page: Path) -> Iterator[str]:
    """`lockstep train ...` in code blocks and docstrings, without comments; not the synopsis."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    lines += [line[4:] for line in FENCE.sub("", text(page)).splitlines() if line.startswith("    ")]
    for line in lines:
        words = re.match(r"(?:torchrun .*-m )?lockstep (train\b.*)", line.partition("  #")[0].strip())
        if words and "[" not in words[1]:
            yield re.split(r" {3,}", words[1])[0]


COMMANDS = [(page, line) for page in [*PAGES, *REPO.glob("examples/*.py")] for line in commands(page)]


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 20
    assert {"README.md", "docs/checkpoints.md", "examples/my_recipe.py"} <= {name(page) for page, _ in COMMANDS}


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: value if isinstance(value, str) else name(value))
def test_commands_are_understood(page: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("lockstep.train.train", lambda *arguments: given.extend(arguments) or 0)
    monkeypatch.chdir(REPO)
    assert app(with_optional_values(shlex.split(line)), standalone_mode=False) == 0
    config, overrides = given[:2]
    resolved = load_config(config if config and config.exists() else None, overrides)
    check_options(recipe_class(resolved.recipe), resolved.options)


PYTHON = [(page, block) for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=lambda value: "" if isinstance(value, str) else name(value))
def test_python_compiles_and_names_what_there_is(page: Path, block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lockstep"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, one.name) for one in node.names), ast.unparse(node)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ls":
            assert node.attr in lockstep.runtime.__all__, ast.unparse(node)


def test_the_index_has_every_page() -> None:
    index = text(REPO / "docs" / "README.md")
    assert not [page.name for page in REPO.glob("docs/*.md") if page.name != "README.md" and page.name not in index]
