"""Fixtures for every test: the police. And which tests run beside others, which alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.police import clean_up, leaks, look

TESTS = Path(__file__).parent
# `make test-all` runs these by themselves, after all others: they hold seconds against a bound, or look at what the
# whole machine has (processes, ports, shared memory), which other tests would change. A path, or the beginning of one.
ALONE = (
    "core/report/test_browser.py",
    "launch/",
    "proof/test_aftermath.py",
    "runtime/data/test_shield.py",
    "runtime/test_stopping.py",
    "runtime/test_world.py",
    "test_bench.py",
    "test_doctor.py",
    "test_police.py",
    "test_ranks.py",
    "test_run.py",
    "test_submit.py",
    "test_train_again.py",
)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that run alone; of the others, keep a file together, whose fixtures start ranks for all of it."""
    spread = config.pluginmanager.hasplugin("xdist")
    for item in items:
        place = item.path.relative_to(TESTS).as_posix()
        if place.startswith(ALONE):
            item.add_marker("alone")
        if spread and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(place))


@pytest.fixture(autouse=True)
def police() -> Iterator[None]:
    """A test leaves the world as it found it, or fails: see `tests/police.py` for what is looked at."""
    before = look()
    yield
    found = leaks(before)
    if found:
        clean_up(before)
        pytest.fail("this test left behind:\n" + "\n".join(f"  {leak}" for leak in found), pytrace=False)
