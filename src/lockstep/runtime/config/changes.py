"""What differs between two configs."""

from typing import Any

from lockstep.runtime.config.problem import KeyPath, dotted, leaves, show
from lockstep.runtime.config.value import Config


def changes(old: Config, new: Config) -> list[str]:
    """The fields that differ, as `optim.lr: 0.001 -> 0.0003`, in the order of the schema; empty when equal."""
    before, after = leaves(old.model_dump()), leaves(new.model_dump())
    if bool(old.options) != bool(new.options):  # an empty mapping is a leaf, its later content speaks for itself
        (after if new.options else before).setdefault(("options",), {})
    paths = [*before, *(path for path in after if path not in before)]
    return [
        f"{dotted(path)}: {_shown(before, path)} -> {_shown(after, path)}"
        for path in paths
        if path not in before or path not in after or before[path] != after[path]
    ]


def _shown(values: dict[KeyPath, Any], path: KeyPath) -> str:
    return show(values[path]) if path in values else "not set"
