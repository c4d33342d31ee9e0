"""Fixtures for every test: the police."""

from collections.abc import Iterator

import pytest

from tests.police import clean_up, leaks, look


@pytest.fixture(autouse=True)
def police() -> Iterator[None]:
    """A test leaves the world as it found it, or fails: see `tests/police.py` for what is looked at."""
    before = look()
    yield
    found = leaks(before)
    if found:
        clean_up(before)
        pytest.fail("this test left behind:\n" + "\n".join(f"  {leak}" for leak in found), pytrace=False)
