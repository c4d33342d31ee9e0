"""One source of values: a YAML file or the overrides of a command line, with where each value stands in it."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.runtime.config.fields import sections
from lockstep.runtime.config.problem import KeyPath, Problem, dotted, walk

# Sections that a single value may stand for, as that key of them.
SHORT_FORMS = {"precision": "name"}

OVERRIDE_FORM = "an override is KEY=VALUE, such as optim.lr=3e-4; VALUE is read as YAML, null means none"


@dataclass(frozen=True)
class Layer:
    """Values as they were written, interpolations unresolved.

    Attributes:
        values: nested mappings.
        places: where each dotted path was written, for people.
    """

    values: dict[Any, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


class SourceError(Exception):
    """A source that cannot be read as a whole; holds what is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


def overlay(under: dict[Any, Any], over: dict[Any, Any]) -> dict[Any, Any]:
    """One mapping of two: mappings are merged key by key, any other value of `over` replaces that of `under`."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def spelled_out(values: dict[Any, Any], places: dict[str, str]) -> dict[Any, Any]:
    """The values with each short form (`precision: bf16`) as the section it stands for, so that layers can be merged.

    Args:
        values: nested mappings of one layer.
        places: where each dotted path was written; gets those of the keys that are spelled out.
    """
    for section, key in SHORT_FORMS.items():
        value = values.get(section)
        if isinstance(value, str | int | float):
            values = {**values, section: {key: value}}
            if section in places:
                places[f"{section}.{key}"] = places[section]
    return values


def yaml_layer(data: bytes, label: str) -> Layer:
    """The layer of a YAML file.

    Args:
        data: the content of the file.
        label: how the file is called in messages.

    Raises:
        SourceError: not UTF-8, not YAML, not a mapping, or a key given twice.
    """
    text = _decode(data, label)
    root = _parse(text, label)
    if root is None or root.tag.endswith(":null"):
        return Layer()
    if not isinstance(root, yaml.MappingNode):
        seen = f"{label} holds {'a list' if isinstance(root, yaml.SequenceNode) else 'a single value'} at its top level"
        raise SourceError([Problem(seen, "a config is a mapping, lines such as `seed: 1`", where=f"{label}, line 1")])
    lines: dict[KeyPath, int] = {}
    if twice := list(_scan(root, label, lines, (), frozenset())):
        raise SourceError(twice)
    try:
        values = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))
    except OmegaConfBaseException as error:
        raise SourceError([_value_problem(error, lines, label)]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a number of thousands of digits is a ValueError
        raise SourceError([_yaml_problem(error, text, label)]) from None
    assert isinstance(values, dict)
    # An empty section, all of its keys commented out, sets nothing.
    kept = {key: value for key, value in values.items() if value is not None or key not in _mapping_names()}
    places = {dotted(path): f"{label}, line {line}" for path, line in lines.items()}
    return Layer(spelled_out(kept, places), places)


def _mapping_names() -> set[str]:
    """The keys that hold a mapping."""
    return {*sections(), "options"}


def _decode(data: bytes, label: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        seen = f"{label} is not UTF-8 text (byte 0x{data[error.start]:02x})"
        problem = Problem(
            seen, "a config is a UTF-8 text file", where=f"{label}, line {line}", next_step="save the file as UTF-8"
        )
        raise SourceError([problem]) from None


def _parse(text: str, label: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise SourceError([_yaml_problem(error, text, label)]) from None


def _yaml_problem(error: Exception, text: str, label: str) -> Problem:
    """File, line, column and the line itself, as far as the parser tells them."""
    where, why = label, str(error).partition("\n")[0]
    if isinstance(error, RecursionError):
        why = "it is nested too deeply"
    elif isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        column = len(before) - (before.rfind("\n") + 1) + 1
        where = f"{label}, line {before.count(chr(10)) + 1}, column {column}"
        why = f"character {ord(text[error.position]):#06x} is not allowed"
    elif isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        why = f"{error.problem}{f' {error.context}' if error.context else ''}"
        line = text.splitlines()[mark.line].strip() if mark.line < len(text.splitlines()) else ""
        where = f"{label}, line {mark.line + 1}, column {mark.column + 1}{f': `{line}`' if line else ''}"
    broken = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError)
    hint = "a text with special characters such as : { } [ ] # ` needs quotes; indent with spaces, not tabs"
    return Problem(
        f"{label} is not valid YAML: {why}", "a config is a YAML mapping", where=where, next_step=hint if broken else ""
    )


def _value_problem(error: OmegaConfBaseException, lines: dict[KeyPath, int], label: str) -> Problem:
    """A key or a value that is YAML but cannot be a part of a config."""
    key = str(error.full_key or "")
    line = lines.get(tuple(key.split(".")))
    why = str(error).partition("\n")[0]
    return Problem(
        f"{key or label} cannot be read: {why}",
        "keys are text, values are plain YAML data, and ${...} is complete",
        where=f"{label}, line {line}" if line else label,
        next_step="write \\${ for a text that holds ${" if "input" in why else "",
    )


def _scan(
    node: yaml.MappingNode, label: str, lines: dict[KeyPath, int], prefix: KeyPath, above: frozenset[int]
) -> list[Problem]:
    """Fill in the line of every key; the problems are the keys given twice."""
    twice: list[Problem] = []
    for key_node, value_node in node.value:
        path, line = (*prefix, _key(key_node)), key_node.start_mark.line + 1
        if path in lines and key_node.value != "<<":
            seen = f"{'.'.join(path)} is given twice"
            where = f"{label}, line {lines[path]} and line {line}"
            twice.append(
                Problem(seen, "each key stands once in a mapping", where=where, next_step="remove one of them")
            )
        lines[path] = line
        if isinstance(value_node, yaml.MappingNode) and id(value_node) not in above:
            twice += _scan(value_node, label, lines, path, above | {id(value_node)})
    return twice


def _key(node: yaml.Node) -> str:
    """A key as the loader will name it; the bare words on and off become truth values."""
    name = str(node.value)
    return str(name.lower() in ("yes", "on", "true")) if node.tag.endswith(":bool") else name


def override_layer(overrides: Sequence[str]) -> tuple[Layer, list[Problem]]:
    """The layer of `key=value` words, later ones winning, and the words that cannot be read."""
    merged, places, problems = dict[Any, Any](), dict[str, str](), list[Problem]()
    for word in overrides:
        try:
            part = _read_override(word)
        except SourceError as bad:
            problems += bad.problems
            continue
        part = spelled_out(part, {})
        merged = overlay(merged, part)
        places |= {dotted(path): f"override `{word}`" for path, _ in walk(part)}
    return Layer(merged, places), problems


def _read_override(word: str) -> dict[Any, Any]:
    key, equals, value = word.partition("=")
    key = key.strip()
    if key.startswith(("-", "+", "~")):
        raise _bad_override(f"override `{word}` begins with `{key[0]}`", word.lstrip("-+~") if equals else "")
    if not equals:
        step = f"{key}=VALUE" if not key.endswith((".yaml", ".yml")) else "give one CONFIG file, before the overrides"
        raise _bad_override(f"override `{word}` has no `=`", step)
    if not key:
        raise _bad_override(f"override `{word}` has an empty key")
    if "" in key.split(".") or any(part != part.strip() for part in key.split(".")):
        raise _bad_override(f"override `{word}` has an empty part in its key")
    if not value.strip():
        raise _bad_override(f"override `{word}` has no value", f"{key}=null for none, or {key}='\"\"' for empty text")
    try:
        values = OmegaConf.to_container(OmegaConf.from_dotlist([f"{key}={value}"]))
    except (yaml.YAMLError, OmegaConfBaseException, RecursionError, ValueError) as error:
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        step = f"put the value in quotes if it is a text: {key}='\"...\"'"
        raise _bad_override(f"override `{word}` has a value that is not valid YAML: {why}", step) from None
    assert isinstance(values, dict)
    return values


def _bad_override(seen: str, next_step: str = "") -> SourceError:
    return SourceError([Problem(seen, OVERRIDE_FORM, next_step=next_step)])
