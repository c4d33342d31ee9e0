"""A tracker whose package is missing is told before anything else is done."""

import importlib.util
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.config import load_config
from lockstep.runtime.trackers.choose import check_trackers, couriers
from tests.runtime.trackers.test_courier import Stub


def config(*overrides: str) -> Any:
    return load_config(None, ["recipe=points", "log.tensorboard=off", *overrides])


def missing(monkeypatch: pytest.MonkeyPatch, *gone: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in gone else found(name))


@pytest.mark.parametrize("override", ["log.wandb=on", "log.wandb=offline", "log.mlflow=on", "log.mlflow=some/folder"])
def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, override: str) -> None:
    missing(monkeypatch, "wandb", "mlflow")
    name = override.partition("=")[0].removeprefix("log.")
    with pytest.raises(UserError, match=f"{name} is not installed") as caught:
        check_trackers(config(override))
    assert override in str(caught.value) and f"torch-lockstep[{name}]" in str(caught.value)


def test_a_folder_that_wandb_has_left_is_not_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    folder = PathFinder.find_spec("wandb", [str(tmp_path)])
    assert folder is not None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: folder)
    with pytest.raises(UserError, match="wandb is not installed"):
        check_trackers(config("log.wandb=on"))


def test_off_asks_for_no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing(monkeypatch, "wandb", "mlflow")
    check_trackers(config())
    assert couriers(config("log.wandb=off", "log.mlflow=off"), (), tmp_path, go_on=False) == []


def test_those_of_the_config_come_before_your_own(tmp_path: Path) -> None:
    found = couriers(config("log.wandb=offline", "log.mlflow=on"), [Stub()], tmp_path, go_on=False)
    assert [one.name for one in found] == ["W&B", "MLflow", "stub"]


def test_two_of_one_name_would_share_what_is_remembered() -> None:
    with pytest.raises(UserError, match="two trackers are named stub"):
        check_trackers(config(), [Stub(), Stub()])
