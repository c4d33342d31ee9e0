"""Names and shapes of a file against those of a model: which belongs to which, and what to do where they do not fit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from lockstep.core.errors import explain
from lockstep.runtime.foreign.names import common_prefix, plain

Shapes = Mapping[str, tuple[int, ...]]
_LISTED, _NEAR = 5, 0.6
_COMPARED = 100  # names on each side for which near ones are looked for


@dataclass(frozen=True)
class Misfit:
    """What stands between a file and a model.

    Attributes:
        missing: names of the model that the file has not. surplus: names of the file that the model has not.
        shapes: of one name and two shapes, (in the file, in the model).
    """

    missing: list[str]
    surplus: list[str]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.shapes)


def fit(theirs: Collection[str], own: Collection[str]) -> dict[str, str]:
    """The name in the model for each name of a file.

    Names are tried as they are, then without what wrappers put into them, then without the first parts that all of them
    share (`model.` of Lightning). Where nothing fits wholly, the second way is kept.

    Args:
        theirs: names in the file. own: clean names of the model.
    """
    as_is = {name: name for name in theirs}
    if theirs and set(theirs) == set(own):
        return as_is
    cleaned = {name: plain(name) for name in theirs}
    if len(set(cleaned.values())) < len(cleaned):
        return as_is
    short = cleaned
    while set(short.values()) != set(own):
        prefix = common_prefix(list(short.values()))
        if not prefix:
            return cleaned
        short = {name: new.removeprefix(prefix) for name, new in short.items()}
    return short


def misfit(theirs: Shapes, own: Shapes) -> Misfit:
    """What does not fit.

    Args:
        theirs: shapes in the file, by the names that the model has for them. own: shapes in the model.
    """
    return Misfit(
        missing=[name for name in own if name not in theirs],
        surplus=[name for name in theirs if name not in own],
        shapes={name: (theirs[name], own[name]) for name in own if name in theirs and theirs[name] != own[name]},
    )


def explanation(source: str, theirs: Shapes, own: Shapes) -> str:
    """Key by key: what is missing, surplus, of another shape; which names are near each other; what to do.

    Args:
        source: where the weights come from. theirs, own: as for `misfit`.
    """
    found = misfit(theirs, own)
    shapes = [f"{name}: {file} in the file, {model} in the model" for name, (file, model) in found.shapes.items()]
    parts = [
        f"{len(names)} {label} ({'; '.join(names[:_LISTED])}{_more(len(names))})"
        for label, names in (
            ("missing in the file", found.missing),
            ("not in the model", found.surplus),
            ("of another shape", shapes),
        )
        if names
    ]
    seen = f"{source} is of another architecture: of the model's {len(own)} tensors, {', '.join(parts)}"
    prefixed = _prefix_between(found.surplus, found.missing) or _prefix_between(found.missing, found.surplus)
    pairs = {} if prefixed else near(found, theirs, own)
    alike = "; ".join(f"{name} looks like the model's {other}" for name, other in list(pairs.items())[:3])
    return explain(seen, "the same names and shapes", alike, next_step(source, found, theirs, own))


def near(found: Misfit, theirs: Shapes, own: Shapes) -> dict[str, str]:
    """Surplus names of the file -> a missing name of the model of the same shape that reads alike."""
    pairs: dict[str, str] = {}
    free = list(found.missing[:_COMPARED])
    for name in found.surplus[:_COMPARED]:
        matches = [(SequenceMatcher(None, name, other).ratio(), other) for other in free if own[other] == theirs[name]]
        ratio, best = max(matches, default=(0.0, ""))
        if ratio >= _NEAR:
            pairs[name] = best
            free.remove(best)
    return pairs


def next_step(source: str, found: Misfit, theirs: Shapes, own: Shapes) -> str:
    """What to do about a misfit: a prefix, another number of classes, a part of the file, or another recipe."""
    convert = f"lockstep ckpt convert {source} weights.safetensors"
    strip = _prefix_between(found.surplus, found.missing)
    if strip:
        more = "" if all(name.startswith(strip) for name in theirs) else f" --only '{strip}*'"
        return f"names fit without {strip!r}: {convert} --strip {strip}{more}"
    add = _prefix_between(found.missing, found.surplus)
    if add:
        return f"names fit with {add!r} before them: {convert} --add {add}"
    if found.shapes and not found.missing and not found.surplus and _first_sizes_only(found):
        return "only first sizes differ (outputs, as a number of classes): use the options that it was saved with"
    if found.surplus and not found.missing and not found.shapes:
        return f"the model's own tensors are all there; leave out the others: {convert} --only GLOB"
    return f"use the recipe and options that it was saved with; `lockstep ckpt show {source}` lists all its names"


def _prefix_between(longer: Collection[str], shorter: Collection[str]) -> str:
    """The prefix without which names become others, of most of these; "" where there is none."""
    wanted = set(shorter)
    votes: dict[str, int] = {}
    for name in longer:
        parts = name.split(".")
        for count in range(1, len(parts)):
            if ".".join(parts[count:]) in wanted:
                prefix = ".".join(parts[:count]) + "."
                votes[prefix] = votes.get(prefix, 0) + 1
    best = max(votes, key=lambda prefix: votes[prefix], default="")
    return best if best and votes[best] > len(wanted) / 2 else ""


def _first_sizes_only(found: Misfit) -> bool:
    return all(file[1:] == model[1:] for file, model in found.shapes.values())


def _more(count: int) -> str:
    return f" ... and {count - _LISTED} more" if count > _LISTED else ""
