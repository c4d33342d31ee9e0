"""The schema as a table: every field with what is allowed, in plain words. Messages and docs are made of it."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from lockstep.runtime.config.problem import KeyPath, either
from lockstep.runtime.config.schema import Fields
from lockstep.runtime.config.value import Config

BOUNDS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


@dataclass(frozen=True)
class FieldDoc:
    """One field of the config.

    Attributes:
        path: ("optim", "lr"); one name for a field outside the sections.
        allowed: type and range in words.
        choices: the names that are allowed, empty where any value of the type is.
        default: value as plain YAML data.
        meaning: unit and meaning of special values.
    """

    path: KeyPath
    allowed: str
    choices: tuple[str, ...]
    default: Any
    meaning: str


@cache
def fields() -> dict[str, FieldDoc]:
    """All fields by dotted path, in the order of the schema."""
    schema = Fields.model_json_schema()
    defaults = Config().model_dump(mode="json")
    found: dict[str, FieldDoc] = {}
    for name, spec in schema["properties"].items():
        if "$ref" not in spec:
            found[name] = _doc((name,), spec, defaults[name])
            continue
        section = schema["$defs"][spec["$ref"].rpartition("/")[2]]
        for key, inner in section["properties"].items():
            found[f"{name}.{key}"] = _doc((name, key), inner, defaults[name][key])
    return found


@cache
def sections() -> dict[str, str]:
    """What each section is about, by name."""
    schema = Fields.model_json_schema()
    refs = {name: spec["$ref"].rpartition("/")[2] for name, spec in schema["properties"].items() if "$ref" in spec}
    return {name: schema["$defs"][ref]["description"] for name, ref in refs.items()}


def field_path(path: KeyPath) -> KeyPath | None:
    """The path of the field that a value belongs to, also from inside a list or mapping; None for no field."""
    known = {field.path for field in fields().values()}
    return next((path[:length] for length in (1, 2) if path[:length] in known), None)


def _doc(path: KeyPath, spec: dict[str, Any], default: Any) -> FieldDoc:
    return FieldDoc(path, allowed_words(spec), tuple(_choices(spec)), default, spec["description"])


def _choices(spec: dict[str, Any]) -> list[str]:
    if "anyOf" in spec:
        return [name for part in spec["anyOf"] for name in _choices(part)]
    return [*spec.get("enum", []), *([spec["const"]] if "const" in spec else [])]


def allowed_words(spec: dict[str, Any]) -> str:
    """What a JSON schema allows, in plain words."""
    if "anyOf" in spec:
        return " or ".join(allowed_words(part) for part in spec["anyOf"])
    if choices := _choices(spec):
        return either([f"`{name}`" for name in choices])
    if spec["type"] == "array":
        if "prefixItems" in spec:
            return f"a list of {spec['minItems']}, each {allowed_words(spec['prefixItems'][0])}"
        return f"a list, each {allowed_words(spec['items'])}"
    if spec["type"] in ("integer", "number"):
        return _number_words(spec)
    return {
        "null": "`null`",
        "boolean": "`true` or `false`",
        "string": "text",
        "object": "a mapping of names to values",
    }[spec["type"]]


def _number_words(spec: dict[str, Any]) -> str:
    noun = "a whole number" if spec["type"] == "integer" else "a number"
    limits = [f"{words} {spec[key]}" for key, words in BOUNDS.items() if key in spec]
    return f"{noun} {' and '.join(limits)}" if limits else noun
