"""What may come next on the command line: asked by the shells' scripts at each TAB, answered from the verbs themselves.

An answer is a line `candidate<TAB>what it is`. One that ends with `=`, `.` or `/` wants more and gets no space.
"""

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.cli_help import first_sentence
from lockstep.cli_keys import config_keys, recipe_classes, recipe_of, recipe_options
from lockstep.recipes import BUILTIN

Answer = tuple[str, str]
YAML, PYTHON = (".yaml", ".yml"), (".py",)


@dataclass
class Place:
    """Where on the line one is.

    verb: the command so far. due: the option whose value comes next. words: those that are no options.
    """

    verb: Any
    due: Any = None
    words: list[str] = field(default_factory=list)
    only_words: bool = False


def answer(root: Any, words: Sequence[str]) -> list[str]:
    """The lines for a command line.

    Args:
        root: the command `lockstep`.
        words: what stands behind it; the last one is being typed, and may be empty.
    """
    *before, current = words or [""]
    place = Place(root)
    for position, word in enumerate(before):
        _pass(place, word, before[position + 1] if position + 1 < len(before) else current)
    found = [one for one in _candidates(place, current) if one[0].startswith(current)]
    return [f"{text}\t{about}" if about else text for text, about in dict(found).items()]


def _pass(place: Place, word: str, following: str) -> None:
    """Go on behind a word."""
    if place.due is not None:
        place.due = None
    elif word == "--":
        place.only_words = True
    elif word.startswith("-") and not place.only_words:
        option = _option(place.verb, word)
        bare = "=" in word or option is None or option.is_flag
        optional = option is not None and str(option.metavar).startswith("[")
        place.due = None if bare or (optional and (following.startswith("-") or "=" in following)) else option
    elif word in getattr(place.verb, "commands", ()):
        place.verb = place.verb.commands[word]
    else:
        place.words.append(word)
        place.only_words |= not place.verb.context_settings.get("allow_interspersed_args", True)


def _candidates(place: Place, current: str) -> Iterator[Answer]:
    if place.due is not None:
        yield from _values(str(place.due.metavar), current)
        if not str(place.due.metavar).startswith("["):  # a value that may be left out: the next word is open
            return
    if current.startswith("-") and not place.only_words:
        name, equals, text = current.partition("=")
        if equals and (option := _option(place.verb, name)) is not None:
            yield from ((f"{name}={value}", about) for value, about in _values(str(option.metavar), text))
        else:
            yield from _options(place.verb)
    elif hasattr(place.verb, "commands"):
        if place.words:  # a verb that there is not
            return
        for name, verb in place.verb.commands.items():
            if not verb.hidden:
                yield name, first_sentence(verb)
    else:
        yield from _arguments(place, current)


def _options(verb: Any) -> Iterator[Answer]:
    for param in verb.params:
        if param.param_type_name == "option" and not param.hidden:
            yield max(param.opts, key=len), _sentence(param.help)
    yield "--help", "Show what there is to say."


def _option(verb: Any, word: str) -> Any:
    name = word.partition("=")[0]
    return next((p for p in verb.params if p.param_type_name == "option" and name in p.opts), None)


def _arguments(place: Place, current: str) -> Iterator[Answer]:
    """Words that are no options: files, or keys of a config."""
    metavars = [str(param.metavar) for param in place.verb.params if param.param_type_name == "argument"]
    if not metavars:
        return
    metavar = metavars[min(len(place.words), len(metavars) - 1)]
    script = any(word.endswith(PYTHON) for word in place.words)
    if metavar == "PROGRAM" or "SCRIPT" in metavar:
        kinds = PYTHON if metavar == "SCRIPT" else PYTHON + YAML
        yield from _files(current, kinds)
        if metavar != "SCRIPT":
            yield from _overrides(place.words, current)
    elif script or metavar == "[ARGS]...":
        yield from _files(current)
    elif "KEY=VALUE" in metavar or "ARGS" in metavar:
        if not any(word.endswith(YAML) for word in place.words):
            yield from _files(current, YAML)
        yield from _overrides(place.words, current)
    else:
        yield from _values(metavar, current)


def _values(metavar: str, current: str) -> Iterator[Answer]:
    """What a placeholder stands for."""
    plain = metavar.strip("[].")
    if plain in ("DIR", "FOLDER"):
        yield from _files(current, ())
    elif plain == "SCRIPT":
        yield from _files(current, PYTHON)
    elif "|" in plain:
        yield from ((name, "") for name in plain.split("|") if name.islower())
    elif plain in ("FILE", "PATH", "SRC", "DST", "A", "B"):
        yield from _files(current)


def _overrides(words: list[str], current: str) -> Iterator[Answer]:
    """`KEY=VALUE`: first the sections, then the keys of one, then the values of a key."""
    key, equals, value = current.partition("=")
    section, dot, _ = key.partition(".")
    if equals:
        yield from ((f"{key}={text}", about) for text, about in _values_of_key(key, value, words))
    elif section == "options" and dot:
        options = recipe_options(recipe_of(words))
        yield from ((f"options.{name}=", option.about) for name, option in options.items())
    else:
        for name, one in config_keys().items():
            if dot or "." not in name:
                yield f"{name}." if name == "options" else f"{name}=", one.about
            else:
                yield f"{name.partition('.')[0]}.", ""


def _values_of_key(key: str, value: str, words: list[str]) -> Iterator[Answer]:
    if key == "recipe":
        file, colon, _ = value.rpartition(":")
        if colon:
            yield from ((f"{file}:{one.name}", "") for one in recipe_classes(Path(file)))
            return
        yield from ((name, "built in") for name in BUILTIN)
        for path, _ in _files(value, PYTHON):
            named = [f"{path}:{one.name}" for one in recipe_classes(Path(path)) if _is_recipe(one)]
            yield from ((name, "") for name in ([path] if path.endswith("/") else named))
    elif key.startswith("options."):
        option = recipe_options(recipe_of(words)).get(key.partition(".")[2])
        yield from ((choice, "") for choice in (option.choices if option else ()))
        if option and "str" in option.about:  # most texts among options are places of data
            yield from _files(value)
    elif known := config_keys().get(key) or config_keys().get(f"{key}.name"):  # `precision=bf16` is short for its name
        yield from ((choice, "") for choice in known.choices)
        if key in ("run.dir", "init_from"):
            yield from _files(value)


def _is_recipe(node: ast.ClassDef) -> bool:
    return any("Recipe" in ast.unparse(base) for base in node.bases)


def _files(typed: str, endings: tuple[str, ...] | None = None) -> Iterator[Answer]:
    """Files and folders that begin so, as they were typed; `endings` None: all of them, (): folders only."""
    folder, name = os.path.split(typed)
    try:
        entries = sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(name) or (entry.name.startswith(".") and not name):
            continue
        path = os.path.join(folder, entry.name)  # noqa: PTH118  # pathlib would drop what was typed: `./`
        if entry.is_dir():
            yield f"{path}/", ""
        elif endings is None or entry.name.endswith(endings or "\0"):
            yield path, ""


def _sentence(text: str | None) -> str:
    return (text or "").partition(". ")[0].rstrip(".")
