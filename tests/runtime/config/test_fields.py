from typing import Any

import pytest

from lockstep.runtime.config import Config
from lockstep.runtime.config.fields import allowed_words, field_path, fields, sections
from lockstep.runtime.config.problem import leaves


def test_every_field_is_there_with_its_meaning() -> None:
    assert [field.path for field in fields().values()] == list(leaves(Config().model_dump()))
    assert all(field.meaning.endswith(".") for field in fields().values())
    assert all(sections().values())


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("recipe", "text"),
        ("options", "a mapping of names to values"),
        ("precision.name", "`auto`, `fp64`, `fp32`, `bf16` or `fp16`"),
        ("run.dir", "text or `null`"),
        ("run.threads", "`auto` or a whole number of at least 1"),
        ("log.progress", "`auto`, `on` or `off`"),
        ("log.all_ranks", "`true` or `false`"),
        ("optim.lr", "a number above 0"),
        ("optim.momentum", "a number of at least 0 and below 1"),
        ("optim.betas", "a list of 2, each a number of at least 0 and below 1"),
        ("schedule.final_factor", "a number of at least 0 and at most 1"),
    ],
)
def test_allowed(name: str, allowed: str) -> None:
    assert fields()[name].allowed == allowed


def test_numbers_without_limits() -> None:
    assert allowed_words({"type": "integer"}) == "a whole number"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("optim", "lr"), ("optim", "lr")),
        (("optim", "betas", "1"), ("optim", "betas")),
        (("options", "a", "b"), ("options",)),
        (("optim",), None),
        (("optim.lr",), None),
        (("nope", "lr"), None),
    ],
)
def test_field_path(path: Any, field: Any) -> None:
    assert field_path(path) == field
