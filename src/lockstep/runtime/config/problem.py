"""One thing that is wrong with a config, and how values and paths are written in messages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str, ...]

LONGEST_VALUE = 80


@dataclass(frozen=True)
class Problem:
    """What `explain` needs to say about one mistake.

    Attributes:
        seen: what was found, with its value.
        must: what is allowed instead.
        paths: dotted paths of the fields that take part, the first one being the subject.
        where: where the values came from; empty where that is to be looked up from `paths`.
        next_step: what the user can write.
    """

    seen: str
    must: str
    paths: tuple[str, ...] = ()
    where: str = ""
    next_step: str = ""


def show(value: Any) -> str:
    """A value as YAML would have it on one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def kind(value: Any) -> str:
    """The type of a value in plain words."""
    names = {
        bool: "a truth value",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def dotted(path: KeyPath) -> str:
    """`optim.lr` for ("optim", "lr")."""
    return ".".join(path)


def either(words: Sequence[str]) -> str:
    """`a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def walk(values: Mapping[Any, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every node below the root with its path, mappings before what they hold."""
    for key, value in values.items():
        path = (*prefix, str(key))
        yield path, value
        if isinstance(value, Mapping):
            yield from walk(value, path)


def leaves(values: Mapping[Any, Any]) -> dict[KeyPath, Any]:
    """Every value that is not a mapping, and every empty mapping, by path."""
    return {path: value for path, value in walk(values) if not (isinstance(value, Mapping) and value)}
