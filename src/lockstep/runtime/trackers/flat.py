"""A nested mapping as one level of dotted names."""

from collections.abc import Mapping
from typing import Any


def flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Each value by its dotted name; lists stay whole, and an empty mapping gives nothing."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found
