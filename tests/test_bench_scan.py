"""The benchmark of `lockstep scan`: that it runs; its numbers are for a quiet machine."""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.test_architecture import REPO


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(REPO / "bench"))
    threads = torch.get_num_threads()
    yield importlib.import_module("scan")
    torch.set_num_threads(threads)
    del sys.modules["scan"]


def test_every_contender_runs_on_every_set(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(images=8, side=16, only="")
    for name, data in bench.sets(args, tmp_path):
        rounds = [bench.one_round(data, 2)]
        assert rounds[0].keys() == {"scan", "DataLoader", "read only"}
        bench.show(name, data, rounds, 2)
    assert capsys.readouterr().out.count("of a plain DataLoader pass, at least 0.9") == 3
