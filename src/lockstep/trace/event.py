"""What all events of a run have."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events have."""

    at: str = ""
    time: float = 0.0
    step: int = 0


def plain(value: Any) -> Any:
    """A JSON value as an event holds it: lists become tuples."""
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value
