"""Every kind of event is known to the reader."""

import dataclasses

from lockstep.trace import events
from lockstep.trace.event import Event, plain


def test_every_kind_can_be_read_and_is_exported() -> None:
    kinds = {kind.__name__: kind for kind in Event.__subclasses__() if kind.__module__.startswith("lockstep.")}
    assert dict(events.KINDS) == kinds
    assert set(events.__all__) == {*kinds, "KINDS", "Event", "plain"}


def test_events_are_values_with_named_fields() -> None:
    for kind in events.KINDS.values():
        fields = dataclasses.fields(kind)
        assert all(field.kw_only for field in fields) and {"at", "time", "step"} <= {field.name for field in fields}
        assert kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("), "says what its fields mean"


def test_json_is_read_as_it_was_told() -> None:
    assert plain({"a": [1, [2, 3]], "b": {"c": []}}) == {"a": (1, (2, 3)), "b": {"c": ()}}
