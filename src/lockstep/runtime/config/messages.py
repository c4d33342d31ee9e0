"""From the mistakes in a config to one error that names them all."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config.conflicts import conflicts
from lockstep.runtime.config.fields import FieldDoc, field_path, fields, sections
from lockstep.runtime.config.problem import KeyPath, Problem, dotted, either, kind, show
from lockstep.runtime.config.schema import Fields
from lockstep.runtime.config.suggest import (
    RANK_KEYS,
    section_keys,
    similar_keys,
    similar_section,
    similar_value,
)


class Sources:
    """Where each value was written: the last layer that has its path."""

    def __init__(self, places: Sequence[Mapping[str, str]]) -> None:
        self.places = places

    def of(self, path: str) -> str:
        """For a dotted path, `config.yaml, line 3`; empty for the schema's default."""
        return next((places[path] for places in reversed(self.places) if path in places), "")

    def say(self, paths: Sequence[str]) -> str:
        """The places of all paths; those left at their default are left out."""
        found = {path: place for path in paths if (place := self.of(path))}
        if len(set(found.values())) <= 1:
            return next(iter(found.values()), "")
        return "; ".join(f"{path} in {place}" for path, place in found.items())


def refuse(problems: Sequence[Problem], sources: Sources | None = None) -> UserError:
    """One error of one block per problem."""
    places = sources or Sources([])
    blocks = [explain(p.seen, p.must, p.where or places.say(p.paths), p.next_step) for p in problems]
    head = [f"The config has {len(blocks)} problems."] if len(blocks) > 1 else []
    return UserError("\n\n".join([*head, *blocks]))


def field_problems(values: dict[Any, Any], skip: Sequence[str] = ()) -> list[Problem]:
    """All that is wrong with plain values: unknown keys, wrong values, impossible combinations.

    Args:
        values: the nested mappings of a config.
        skip: dotted paths already known to be wrong, left out of `values`; no combination is judged by them.
    """
    try:
        checked, problems = Fields.model_validate(values), list[Problem]()
    except ValidationError as error:
        problems = list(_pydantic_problems(error, values).values())
        checked = Fields.model_validate(_without(values, error))
    wrong = {*skip, *(path for problem in problems for path in problem.paths)}
    return problems + [problem for problem in conflicts(checked) if not _touches(problem.paths, wrong)]


def _touches(paths: Sequence[str], wrong: set[str]) -> bool:
    """Whether a field, or the section it is in, is wrong by itself."""
    return any(path in wrong or path.partition(".")[0] in wrong for path in paths)


def _without(values: dict[Any, Any], error: ValidationError) -> dict[Any, Any]:
    """The values that are right by themselves."""
    wrong = {path for item in error.errors() for path in [_path(item["loc"], item["input"], item["type"])]}
    wrong |= {field for path in wrong if (field := field_path(path))}
    kept = {key: value for key, value in values.items() if (str(key),) not in wrong}
    return {
        key: {inner: item for inner, item in value.items() if (str(key), str(inner)) not in wrong}
        if key in sections()
        else value
        for key, value in kept.items()
    }


def _path(loc: tuple[int | str, ...], given: Any, error_type: str) -> KeyPath:
    """Where an error is, by the keys as they were written."""
    if error_type == "invalid_key":
        return (*(str(part) for part in loc[:-1]), str(given))
    return tuple(str(part) for part in loc)


def _pydantic_problems(error: ValidationError, values: dict[Any, Any]) -> dict[KeyPath, Problem]:
    """One problem for each field or key; pydantic gives one for each branch of a union."""
    found: dict[KeyPath, Problem] = {}
    for item in error.errors():
        path = _path(item["loc"], item["input"], item["type"])
        field = field_path(path)
        if item["type"] == "invalid_key":
            found[path] = _not_text_key(path, item["input"])
        elif field is not None:
            found.setdefault(field, _wrong_value(fields()[dotted(field)], values, path))
        elif item["type"] == "extra_forbidden":
            found |= {inner: _unknown_key(inner, value) for inner, value in _spread(path, item["input"])}
        else:
            found[path] = _not_a_section(path, item["input"])
    return found


def _spread(path: KeyPath, value: Any) -> list[tuple[KeyPath, Any]]:
    """An unknown section as its keys, so that each one is told its right place."""
    if len(path) == 1 and isinstance(value, dict) and value:
        return [((*path, str(key)), item) for key, item in value.items()]
    return [(path, value)]


def _wrong_value(field: FieldDoc, values: dict[Any, Any], path: KeyPath) -> Problem:
    value: Any = values
    for key in field.path:
        value = value[key]
    guess = similar_value(field, value)
    seen = f"{dotted(field.path)} is {show(value)}{_kind_note(field, value)}"
    must = field.allowed
    if path[-1] == "[key]" or (field.path == ("options",) and isinstance(value, dict)):
        must = "option names are text, and values are null, true or false, numbers, text, lists and mappings"
    return Problem(seen, must, (dotted(field.path),), next_step=f"did you mean {guess}?" if guess else "")


def _kind_note(field: FieldDoc, value: Any) -> str:
    """The type, where the value alone does not show what is wrong with it."""
    return "" if value is None or (isinstance(value, str) and field.choices) else f" ({kind(value)})"


def _not_a_section(path: KeyPath, value: Any) -> Problem:
    name = dotted(path)
    must = f"{name} is a section with the keys {section_keys(name)}"
    key = next((field for field in fields() if field in (f"{name}.name", f"{name}.metric")), "")
    return Problem(
        f"{name} is {show(value)} ({kind(value)})", must, (name,), next_step=f"did you mean {key}?" if key else ""
    )


def _not_text_key(path: KeyPath, key: Any) -> Problem:
    step = "the bare words on, off, yes and no are truth values in YAML; quote them" if isinstance(key, bool) else ""
    return Problem(
        f"{'.'.join((*path[:-1], show(key)))} is a key that is {kind(key)}",
        "keys are the names of fields",
        (dotted(path),),
        next_step=step,
    )


def _unknown_key(path: KeyPath, value: Any) -> Problem:
    name = dotted(path)
    seen = f"{name} does not exist (value {show(value)})"
    if path[-1].lower() in RANK_KEYS:
        must = "the number of ranks is no part of the config, so that one config runs at any number"
        return Problem(
            seen, must, (name,), next_step="remove it and start with `lockstep train --nproc N`, or with torchrun"
        )
    near = similar_keys(path)
    # A field that was meant is no more at its default than the unknown key is right: no follow-up about it.
    return Problem(seen, _known_keys(path), (name, *near), next_step=_hint(path, near))


def _known_keys(path: KeyPath) -> str:
    """The keys there are where an unknown one stands."""
    if len(path) > 1 and (section := similar_section(path[0])):
        return f"the keys of {section} are {section_keys(section)}"
    alone = ", ".join(name for name in fields() if "." not in name)
    return f"a key is {alone}, or SECTION.KEY with one of the sections {', '.join(sections())}"


def _hint(path: KeyPath, near: list[str]) -> str:
    if any(dotted(path) == name for name in near):  # `optim.lr: 3` as one key of a file
        return f"write it nested: {path[0].replace('.', ': {')}: ...}}"
    if near:
        return f"did you mean {either(near)}?"
    if len(path) == 1 and (section := similar_section(path[0])):
        return f"did you mean the section {section}, such as {section}.{section_keys(section).partition(',')[0]}?"
    return f"an option of the recipe is options.{path[-1]}" if len(path) == 1 else ""
