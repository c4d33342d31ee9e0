"""Fixtures for every test: the police. And which tests run beside others, which alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.police import clean_up, leaks, look
from tests.spread import ALONE, scheduler


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run alone."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(ALONE):
            item.add_marker("alone")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes do not name a test: some hold the time at which they were made, and workers must agree on the names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Share the other tests out among the workers."""
    return scheduler(config, log)


@pytest.fixture(autouse=True)
def police() -> Iterator[None]:
    """A test leaves the world as it found it, or fails: see `tests/police.py` for what is looked at."""
    before = look()
    yield
    found = leaks(before)
    if found:
        clean_up(before)
        pytest.fail("this test left behind:\n" + "\n".join(f"  {leak}" for leak in found), pytrace=False)
