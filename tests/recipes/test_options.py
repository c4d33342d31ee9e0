from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lockstep.core.errors import UserError
from lockstep.recipes.options import check_options

if TYPE_CHECKING:
    from nowhere import Thing  # type: ignore[import-not-found]


class Net:
    """A class that pydantic does not know."""


class Example:
    def __init__(
        self,
        width: int,
        rate: float = 0.5,
        kind: Literal["big", "small"] = "big",
        deep: bool = False,
        sides: tuple[int, ...] = (1, 2),
        source: Path | None = None,
        anything=None,  # type: ignore[no-untyped-def]  # as a user may write it
        net: Net | None = None,
    ) -> None: ...


class Open:
    def __init__(self, width: int = 1, **more: object) -> None: ...


class Bare:
    """Has no options."""


class Unresolvable:
    def __init__(self, thing: "Thing" = None, width: int = 1) -> None: ...


def refusal(options: dict[str, Any], recipe: type = Example) -> str:
    with pytest.raises(UserError) as caught:
        check_options(recipe, options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("rate", 1, 1.0),
        ("kind", "small", "small"),
        ("deep", True, True),
        ("sides", [3, 4], (3, 4)),
        ("source", "a/b", Path("a/b")),
        ("source", None, None),
        ("anything", {"a": 1}, {"a": 1}),
        ("rate", float("inf"), float("inf")),
    ],
)
def test_values_of_a_config_become_the_hinted_type(name: str, given: object, taken: object) -> None:
    values = check_options(Example, {"width": 4, name: given})
    assert values == {"width": 4, name: taken} and type(values[name]) is type(taken)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("width", "4"),
        ("width", 4.5),
        ("width", True),
        ("width", None),
        ("rate", "high"),
        ("kind", "medium"),
        ("deep", "yes"),
        ("deep", 1),
        ("sides", [1, "x"]),
    ],
)
def test_another_type_is_refused_with_the_value(name: str, wrong: object) -> None:
    message = refusal({"width": 4, name: wrong})
    at = "[1]='x'" if isinstance(wrong, list) else f"={wrong!r}"
    assert f"{name}{at}" in message


def test_an_unknown_option_is_answered_with_a_guess_and_the_list() -> None:
    message = refusal({"width": 4, "rat": 1})
    assert "did you mean 'rate'?" in message
    assert "width: int; rate: float = 0.5; kind: Literal['big', 'small'] = 'big'; deep: bool = False" in message


def test_a_missing_option_is_named() -> None:
    assert refusal({}).startswith("width is missing.")


def test_all_mistakes_come_at_once() -> None:
    message = refusal({"rate": "x", "depth": 2})
    assert message.startswith("3 mistakes in the options: ")
    assert all(part in message for part in ("rate='x'", "'depth'", "width is missing"))


def test_further_keywords_are_for_a_class_that_takes_them() -> None:
    assert check_options(Open, {"width": 2, "other": "x"}) == {"width": 2, "other": "x"}
    assert "width='x'" in refusal({"width": "x"}, Open)


def test_a_class_without_options_says_so() -> None:
    assert check_options(Bare, {}) == {}
    assert "keyword arguments of Bare: none" in refusal({"width": 1}, Bare)


def test_a_hint_that_cannot_be_resolved_takes_anything() -> None:
    assert check_options(Unresolvable, {"thing": 3}) == {"thing": 3}


def test_a_caller_from_python_may_pass_an_object() -> None:
    net = Net()
    assert check_options(Example, {"width": 4, "net": net})["net"] is net
    assert "net=" in refusal({"width": 4, "net": 3})
    call: Callable[[], None] = lambda: None  # noqa: E731
    assert "width=" in refusal({"width": call})
