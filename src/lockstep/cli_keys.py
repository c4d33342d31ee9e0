"""The keys of a config and the options of a recipe, read from source text: pressing TAB must not import pydantic.

Importing the config costs a quarter of a second, a recipe's torch costs more. `test_cli_keys.py` compares what is read
here with what the imported schema says.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lockstep.recipes import BUILTIN

CONFIG_SOURCES = Path(__file__).parent / "runtime" / "config"
ROOT = "Fields"


class Key(NamedTuple):
    """One key: the values that can be named, and the first sentence about it."""

    choices: tuple[str, ...] = ()
    about: str = ""


@cache
def config_keys() -> dict[str, Key]:
    """All keys by dotted path; those of a section stand behind it."""
    classes, aliases = _declarations()
    found: dict[str, Key] = {}
    for name, annotation, value in _fields(classes[ROOT]):
        section = classes.get(annotation.id) if isinstance(annotation, ast.Name) else None
        if section is None:
            found[name] = Key(_choices(annotation, aliases), _about(value))
            continue
        for inner, kind, told in _fields(section):
            found[f"{name}.{inner}"] = Key(_choices(kind, aliases), _about(told))
    return found


def recipe_options(recipe: str) -> dict[str, Key]:
    """The options of a recipe by name: keyword arguments of its class. Empty where it cannot be read."""
    place, _, name = BUILTIN.get(recipe, recipe).rpartition(":")
    if recipe in BUILTIN:
        spec = importlib.util.find_spec(place)  # imports no more than the package around it
        place = str(spec.origin) if spec is not None else ""
    for node in recipe_classes(Path(place)):
        if node.name == name:
            return {arg.arg: Key(_choices(arg.annotation, {}), _kind(arg.annotation)) for arg in _arguments(node)}
    return {}


def recipe_classes(path: Path) -> list[ast.ClassDef]:
    """The classes of a file; none where it cannot be read."""
    try:
        return [node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.ClassDef)]
    except (OSError, SyntaxError, ValueError):
        return []


def recipe_of(words: list[str]) -> str:
    """The recipe that words of a command name: `recipe=NAME`, or the line of a config file among them."""
    named = [word.partition("=")[2] for word in words if word.startswith("recipe=")]
    if named:
        return named[-1]
    for path in (Path(word) for word in words if word.endswith((".yaml", ".yml"))):
        try:
            line = re.search(r"^recipe:[ \t]*([^\s#]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        except (OSError, UnicodeDecodeError):
            continue
        if line:
            file = path.parent / line[1]
            return str(file) if ".py:" in line[1] and not Path(line[1].rpartition(":")[0]).exists() else line[1]
    return "digit_scenes"


def _declarations() -> tuple[dict[str, ast.ClassDef], dict[str, ast.expr]]:
    """The classes of the schema, and what its short names for types stand for."""
    classes: dict[str, ast.ClassDef] = {}
    aliases: dict[str, ast.expr] = {}
    for path in sorted(CONFIG_SOURCES.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Section" not in text:
            continue
        for node in ast.parse(text).body:
            match node:
                case ast.ClassDef():
                    classes[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    aliases[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    aliases[name] = value
    return classes, aliases


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, line.annotation, line.value


def _choices(kind: ast.expr | None, aliases: dict[str, ast.expr]) -> tuple[str, ...]:
    """The values that an annotation names."""
    match kind:
        case ast.Name(id="bool"):
            return ("true", "false")
        case ast.Name(id=name) if name in aliases:
            return _choices(aliases[name], aliases)
        case ast.Constant(value=None):
            return ("null",)
        case ast.BinOp(left=left, right=right):
            return (*_choices(left, aliases), *_choices(right, aliases))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=names):
            return tuple(str(one.value) for one in ast.walk(names) if isinstance(one, ast.Constant))
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *_])):
            return _choices(inner, aliases)
    return ()


def _about(field: ast.expr | None) -> str:
    """The first sentence of a field's description."""
    if not isinstance(field, ast.Call):
        return ""
    for keyword in field.keywords:
        if keyword.arg == "description":
            text = "".join(str(one.value) for one in ast.walk(keyword.value) if isinstance(one, ast.Constant))
            return re.split(r"(?<=[a-z)`])\. |(?<=[.;]) ", text)[0].rstrip(".;")
    return ""


def _kind(annotation: ast.expr | None) -> str:
    return ast.unparse(annotation) if annotation is not None else ""


def _arguments(node: ast.ClassDef) -> list[ast.arg]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return [*part.args.args[1:], *part.args.kwonlyargs]
    return []
