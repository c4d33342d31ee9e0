"""LS306: weights that were loaded and did not arrive."""

import pytest

from lockstep.rules import weights_loaded
from lockstep.trace.events import Loaded
from tests.rules.by_hand import HERE, trace


def loaded(matched: int, given: int, wanted: int, strict: bool = False, what: str = "module") -> list[Loaded]:
    return [Loaded(what=what, matched=matched, given=given, wanted=wanted, strict=strict, at=f"{HERE}:5")]


@pytest.mark.parametrize(("matched", "given", "wanted"), [(0, 42, 42), (3, 42, 42), (0, 0, 42)])
def test_next_to_nothing(matched: int, given: int, wanted: int) -> None:
    (finding,) = weights_loaded.dynamic(trace(loaded(matched, given, wanted), loaded(matched, given, wanted)))
    assert f"used {matched} of {given} entries; the module has {wanted}" in finding.seen
    assert [one.rank for one in finding.witnesses] == [0, 1]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(loaded(42, 42, 42), id="all of it"),
        pytest.param(loaded(40, 42, 42), id="all but a head"),
        pytest.param(loaded(10, 10, 400), id="a backbone into a large model"),
        pytest.param(loaded(10, 400, 10), id="a part of a large file"),
        pytest.param(loaded(0, 42, 42, strict=True), id="strict: torch has raised"),
        pytest.param(loaded(0, 42, 42, what="optimizer"), id="an optimizer"),
        pytest.param(loaded(0, 0, 0), id="a module without weights"),
    ],
)
def test_left_alone(events: list[Loaded]) -> None:
    assert not list(weights_loaded.dynamic(trace(events)))
