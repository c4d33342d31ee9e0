"""What all sections have in common."""

from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.runtime.config.section import Count, Section, Switch, Text, off_word, yaml_switch


class Some(Section):
    number: Count = 1
    text: Text = "x"
    switch: Switch = "auto"


@pytest.mark.parametrize(("value", "read"), [(True, "on"), (False, "off"), ("auto", "auto"), (3, 3)])
def test_yaml_reads_on_and_off_as_truth_values(value: Any, read: Any) -> None:
    assert yaml_switch(value) == read
    assert off_word(False) == "off"
    assert off_word(True) is True


@pytest.mark.parametrize("values", [{"number": "1"}, {"number": 0}, {"text": ""}, {"switch": "maybe"}, {"other": 1}])
def test_strict_and_closed(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Some(**values)


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        Some(switch=True).number = 2  # type: ignore[misc,arg-type]
