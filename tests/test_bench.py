"""The benchmark's arithmetic and its list of contenders; the contenders themselves run in `make bench`."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lockstep.runtime.config import load_config
from tests.test_architecture import REPO

Bench = dict[str, ModuleType]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.syspath_prepend(str(REPO / "bench"))
    yield {name: importlib.import_module(name) for name in ("jobs", "run")}
    for name in ("jobs", "run"):
        del sys.modules[name]


def result(step_s: float) -> dict[str, Any]:
    return {"step_s": step_s, "first_step_s": 2.0, "rss_mib": 300, "loss": 3.0}


def test_every_contender_exists_and_every_name_is_known(bench: Bench) -> None:
    jobs = bench["jobs"]
    for one in jobs.CONTENDERS.values():
        assert (REPO / "bench" / "peers" / f"{one.script}.py").exists()
        assert one.limit == "" or one.limit in jobs.CONTENDERS
    for job in jobs.JOBS.values():
        assert job.contenders[0] == jobs.BASE
        named = {*job.contenders, *(budget.over for budget in job.budgets), *(budget.under for budget in job.budgets)}
        assert named <= jobs.CONTENDERS.keys()


def test_ratios_are_taken_round_by_round(bench: Bench) -> None:
    rounds = [
        {"a": result(1.0), "b": result(2.0)},
        {"a": result(30.0), "b": result(10.0)},
        {"a": None, "b": result(1.0)},
    ]
    assert bench["run"].ratio(rounds, "a", "b") == 1.75
    assert bench["run"].ratio(rounds, "a", "c") is None


def test_budgets_say_met_missed_or_not_measured(
    bench: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {"raw-ddp": 1.0, "lockstep-plain": 1.01, "lockstep": 0.8, "lockstep-no-comm": 0.78}
    rounds = [{name: result(step_s) for name, step_s in steps.items()}]
    verdicts = [row["verdict"] for row in bench["run"].budgets(bench["jobs"].UNET, rounds)]
    assert verdicts == ["missed", "met", "not measured", "met"]
    bench["run"].table(bench["jobs"].UNET, [{**rounds[0], "fabric": None}])
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "lockstep / lockstep-no-comm = 1.026, at most 1.050" in shown


def test_the_ways_of_sharing_memory_are_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPO / "bench"))
    memory = importlib.import_module("memory")
    found = {name: load_config(None, [*memory.COMMON, *more]) for name, more in memory.WAYS.items()}
    assert len({repr((config.parallel, config.memory)) for config in found.values()}) == len(found)
    assert memory.status_kib("VmRSS") > 1000
    del sys.modules["memory"]
