"""Lines for people and values for programs, about what was found in checkpoints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any

from lockstep.core.words import amount, columns
from lockstep.runtime.foreign.compare import Compared
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.names import plain, prefixes_of
from lockstep.runtime.foreign.origins import told
from lockstep.runtime.foreign.tree import is_training_state
from lockstep.runtime.foreign.values import Odd, odd_values
from lockstep.runtime.foreign.writing import owners

OddValues = Mapping[tuple[str, str], Odd]


@dataclass(frozen=True)
class Shown:
    """Which tensors are listed.

    Attributes:
        pattern: a glob on names, None for those of the model.
        limit: how many lines, 0 for all.
    """

    pattern: str | None = None
    limit: int = 40

    def takes(self, group: str, name: str) -> bool:
        """Whether a tensor is listed."""
        if self.pattern is None:
            return not is_training_state(group)
        forms = (name, plain(name), f"{group}.{name}")
        return any(fnmatchcase(form, self.pattern) for form in forms)


def show_lines(contents: Contents, shown: Shown, odd: OddValues | None) -> Iterator[str]:
    """What is in a checkpoint.

    Args:
        contents: it.
        shown: which tensors are listed.
        odd: NaN and inf by group and name; None where they were not looked for.
    """
    yield f"{contents.path}: {contents.kind}"
    for key, value in contents.facts.items():
        yield f"  {key}: {value}"
    for group, entries in contents.groups.items():
        yield ""
        yield heading(contents, group, entries)
        rows = [
            _row(name, entry, (odd or {}).get((group, name)))
            for name, entry in entries.items()
            if shown.takes(group, name)
        ]
        listed = rows[: shown.limit] if shown.limit else rows
        if listed:
            yield from (f"  {line}" for line in columns([("name", "shape", "type", "size", ""), *listed]))
        if len(rows) > len(listed):
            yield f"  ... and {len(rows) - len(listed)} more: --limit 0 shows all, --filter GLOB some"
    yield from _remarks(contents, odd)


def odd_in(contents: Contents) -> dict[tuple[str, str], Odd]:
    """NaN and inf by group and name, in models and optimizers; their tensors are read one at a time.

    What callbacks and schedules keep is left out: there an infinite best value is the start of a search.
    """
    found = {
        (group, name): odd_values(entry.load())
        for group, entries in contents.groups.items()
        if not is_training_state(group) or "optim" in group.lower()
        for name, entry in entries.items()
    }
    return {key: odd for key, odd in found.items() if odd}


def heading(contents: Contents, group: str, entries: Mapping[str, Entry]) -> str:
    """A group in one line: how many tensors, parameters, bytes, of which types."""
    ties = owners(entries)
    own = [entry for name, entry in entries.items() if name not in ties]
    types: dict[str, int] = {}
    for entry in own:
        types[entry.dtype] = types.get(entry.dtype, 0) + 1
    kinds = ", ".join(types) if len(types) == 1 else ", ".join(f"{count} {kind}" for kind, count in types.items())
    tied = f", {len(ties)} of them tied" if ties else ""
    name = group or ("tensors" if contents.weights == "" else "by themselves")
    weights = " (the weights)" if group == contents.weights and group else ""
    size = amount(sum(entry.nbytes for entry in own))
    count = sum(entry.numel for entry in own)
    numbers = f"{count:,} number{'s' * (count != 1)}"
    return f"{name}{weights}: {len(entries)} tensor{'s' * (len(entries) != 1)}{tied}, {numbers}, {size}, {kinds}"


def _row(name: str, entry: Entry, odd: Odd | None) -> tuple[str, ...]:
    shape = "x".join(str(size) for size in entry.shape) or "()"
    return name, shape, entry.dtype, amount(entry.nbytes), str(odd) if odd else ""


def _remarks(contents: Contents, odd: OddValues | None) -> Iterator[str]:
    yield ""
    weights = contents.groups.get(contents.weights, {}) if contents.weights is not None else {}
    for prefix, count in prefixes_of(weights).items():
        yield f"prefix {prefix} in {count} of {len(weights)} names"
    if contents.damage:
        yield f"DAMAGED: {contents.damage}"
    if odd is not None and contents.groups:
        bad = [f"{group}{'.' * bool(group)}{name} ({what})" for (group, name), what in odd.items()]
        told_bad = f"{', '.join(bad[:5])}{f' and {len(bad) - 5} more' if len(bad) > 5 else ''}"
        yield f"not finite: {told_bad}" if bad else "finite: no NaN, no inf in the weights and the optimizer"
    for line in told(contents.origins):
        yield f"not plain data: {line}"
    yield from (f"note: {note}" for note in contents.notes)
    if contents.weights is None and contents.groups:
        names = " | ".join(name for name in contents.groups if name)
        yield f"which of these are the weights is not clear: --key {names}"


def as_json(contents: Contents, shown: Shown, odd: OddValues | None) -> dict[str, Any]:
    """The same for programs; all tensors of the model, or those of the pattern."""
    groups = {
        group: [
            {
                "name": name,
                "shape": list(entry.shape),
                "dtype": entry.dtype,
                "bytes": entry.nbytes,
                **({"nan": bad.nan, "inf": bad.inf} if odd and (bad := odd.get((group, name))) else {}),
            }
            for name, entry in entries.items()
            if shown.pattern is None or shown.takes(group, name)
        ]
        for group, entries in contents.groups.items()
    }
    weights = contents.groups.get(contents.weights, {}) if contents.weights is not None else {}
    facts = {
        key: value if not isinstance(value, float) or isfinite(value) else str(value)
        for key, value in contents.facts.items()
    }
    return {
        "path": str(contents.path),
        "kind": contents.kind,
        "weights": contents.weights,
        "facts": facts,
        "groups": groups,
        "prefixes": prefixes_of(weights),
        "finite": None if odd is None else not odd,
        "foreign": contents.origins,
        "runs_code": contents.dangerous,
        "calls_unknown": contents.unknown,
        "damage": contents.damage,
        "notes": contents.notes,
    }


def difference(one: Compared) -> str:
    """What is different about a tensor, in a line."""
    if one.verdict == "only left":
        return f"only in the first ({one.detail})"
    if one.verdict == "only right":
        return f"only in the second ({one.detail})"
    if one.verdict == "shape":
        return f"shape {one.detail}"
    types = f"{one.detail}; " if one.detail else ""
    if one.distance is None:
        return f"{types}same values"
    far = one.distance
    at = f"[{', '.join(str(index) for index in far.first)}]" if far.first else ""
    values = f"{far.left:.9g} and {far.right:.9g}"
    share = f"{far.elements:,} of {far.numel:,} elements"
    return f"{types}{share}, at most {far.largest:.3g}, {far.relative:.2g} of the norm; first {at} {values}"
