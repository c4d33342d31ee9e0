"""The options of a recipe are the keyword arguments of its class; the signature says which there are, of which type."""

import inspect
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from lockstep.core.errors import UserError, explain


class Option:
    """One keyword argument of a recipe: its name, type and default."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        self.name = parameter.name
        self.hint = hint
        self.required = parameter.default is inspect.Parameter.empty
        self.default = parameter.default

    def __str__(self) -> str:
        kind = "" if self.hint is Any else f": {inspect.formatannotation(self.hint)}"
        return f"{self.name}{kind}" + ("" if self.required else f" = {self.default!r}")

    def parse(self, value: Any) -> Any:
        """The value in the option's type: a list where a tuple is asked for, an int for a float, nothing looser.

        Raises:
            ValueError: it has another type; the text says what is allowed.
        """
        if self.hint is Any or (value is None and self.default is None):
            return value
        try:
            return _validate(self.hint, value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            at = "".join(f"[{part!r}]" for part in first["loc"])
            raise ValueError(f"{self.name}{at}={first['input']!r}: {first['msg'].lower()}") from None


def check_options(recipe: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the recipe's class takes them.

    Raises:
        UserError: options that do not exist, have another type or are missing, all of them in one message.
    """
    known, takes_more = recipe_options(recipe)
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in known:
            try:
                values[name] = known[name].parse(value)
            except ValueError as error:
                mistakes.append(str(error))
        elif takes_more:
            values[name] = value
        else:
            close = get_close_matches(name, known, n=1)
            mistakes.append(f"there is no option {name!r}" + (f", did you mean {close[0]!r}?" if close else ""))
    missing = [option for option in known.values() if option.required and option.name not in options]
    mistakes += [f"{option.name} is missing" for option in missing]
    if mistakes:
        raise _refuse(recipe, mistakes, known)
    return values


def recipe_options(recipe: type) -> tuple[dict[str, Option], bool]:
    """The options of a recipe's class by name, and whether it takes others besides (`**kwargs`)."""
    parameters = inspect.signature(recipe).parameters.values()
    try:
        hints = get_type_hints(recipe.__init__)  # type: ignore[misc]  # its hints are read, it is not called
    except Exception:
        # A hint that only a type checker can resolve says nothing at run time: take any value.
        hints = {}
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {p.name: Option(p, hints.get(p.name, Any)) for p in parameters if p.kind in by_keyword}
    return known, any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _validate(hint: Any, value: Any) -> Any:
    """A value of YAML in the type of a hint, strict as JSON is: a list may become a tuple, but no text a number."""
    has_config = isinstance(hint, type) and (hasattr(hint, "__pydantic_config__") or hasattr(hint, "model_config"))
    try:
        adapter = TypeAdapter(hint, config=None if has_config else ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_json(json.dumps(value), strict=True)
    except (TypeError, PydanticUserError):
        # The value is no JSON (a caller from Python passed an object), or pydantic does not know the type.
        return adapter.validate_python(value, strict=True)


def _refuse(recipe: type, mistakes: list[str], known: Mapping[str, Option]) -> UserError:
    count = f"{len(mistakes)} mistakes in the options: " if len(mistakes) > 1 else ""
    available = "; ".join(str(option) for option in known.values()) or "none"
    return UserError(
        explain(
            count + "; ".join(mistakes),
            must=f"options are the keyword arguments of {recipe.__name__}: {available}",
            where="options",
            next_step="correct options.NAME=VALUE on the command line, or options: in the config",
        )
    )
