"""W&B: what its environment says, and what happens where nobody is logged in, or the service does not answer."""

import logging
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.trackers import About
from lockstep.runtime.trackers.courier import Courier
from lockstep.runtime.trackers.memory import Memory
from lockstep.runtime.trackers.wandb_run import WandbRun
from tests.disks import small_disk
from tests.ranks import run_ranks
from tests.runtime.trackers.readers import wandb_run

pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own imports


def services() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith("wandb") and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def courier(folder: str, offline: bool, timeout_s: float = 60.0) -> tuple[Courier, list[str]]:
    """A begun way to W&B, and what is said from now on."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lockstep").addHandler(handler)
    one = Courier(WandbRun(offline, None, named=False), Memory(Path(folder), go_on=False))
    one.begin(About("name", Path(folder), {"lr": 0.1}, {"num_ranks": 2}), timeout_s)
    return one, said


def end(one: Courier, timeout_s: float = 20.0) -> float:
    start = time.monotonic()
    one.finish("done", {})
    one.wait(start + timeout_s)
    return time.monotonic() - start


def refused(folder: str, timeout_s: float) -> tuple[str, int]:
    try:
        courier(folder, offline=False, timeout_s=timeout_s)
    except (UserError, RunError) as error:
        return f"{type(error).__name__}: {error}", len(services())
    return "begun", len(services())


def outside(home: Path, **more: str) -> Mapping[str, str]:
    """The environment of somebody who has never logged in."""
    return {"HOME": str(home), "NETRC": str(home / "netrc"), "WANDB_API_KEY": "", **more}


def test_who_is_not_logged_in_is_told_and_not_asked(tmp_path: Path) -> None:
    ((told, left),) = run_ranks(refused, 1, str(tmp_path), 60.0, env=dict(outside(tmp_path)))
    assert told.startswith("UserError: W&B has no API key on this machine") and "log.wandb=offline" in told
    assert left == 0


def test_a_server_that_does_not_answer_is_told_and_its_service_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = dict(outside(tmp_path, WANDB_API_KEY="0123456789" * 4, WANDB_BASE_URL=url))
        start = time.monotonic()
        ((told, left),) = run_ranks(refused, 1, str(tmp_path), 4.0, env=env)
    assert told.startswith("RunError: W&B has not answered in 4 s") and left == 0
    assert time.monotonic() - start < 40


def service_stops(folder: str) -> tuple[list[str], float, int]:
    one, said = courier(folder, offline=True)
    one.record(1, {"loss": 1.0})
    for service in services():
        service.send_signal(signal.SIGSTOP)
    one.record(2, {"loss": 1.0})
    return said, end(one, timeout_s=1.0), len(services())


def test_a_service_that_hangs_costs_no_more_than_the_wait_at_the_end(tmp_path: Path) -> None:
    ((said, seconds, left),) = run_ranks(service_stops, 1, str(tmp_path))
    assert seconds < 4 and left == 0
    assert len(said) == 1 and said[0].startswith("W&B has not taken all of the run in time")


def service_dies(folder: str) -> tuple[list[str], float]:
    one, said = courier(folder, offline=True)
    for service in services():
        service.kill()
    for step in range(5):
        one.record(step, {"loss": 1.0})
    return said, end(one)


def test_a_service_that_dies_is_told_once(tmp_path: Path) -> None:
    ((said, seconds),) = run_ranks(service_dies, 1, str(tmp_path))
    assert "training goes on" in said[0] and seconds < 20
    assert len([line for line in said if "training goes on" in line]) == 1


def fill(folder: str) -> tuple[list[str], float]:
    one, said = courier(folder, offline=True)
    with suppress(OSError), Path(folder, "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(b"x" * 4096)
    for step in range(50):
        one.record(step, {f"value/{name}": 1.0 for name in range(100)})
    return said, end(one)


def test_a_full_disk_does_not_end_a_training(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "4m"):
        ((said, seconds),) = run_ranks(fill, 1, str(tmp_path / "small"))
    assert seconds < 20 and len(said) <= 2, said


def by_environment(folder: str) -> list[str]:
    one, _ = courier(folder, offline=False)
    end(one)
    return sorted(path.name for path in Path(folder).rglob("offline-run-*"))


def test_its_own_environment_variables_hold_where_the_config_says_nothing(tmp_path: Path) -> None:
    env = {"WANDB_MODE": "offline", "WANDB_PROJECT": "by environment", "WANDB_NAME": "mine"}
    env |= {"WANDB_RUN_ID": "chosen", "WANDB_DIR": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere").mkdir()
    run_ranks(by_environment, 1, str(tmp_path / "elsewhere"), env=dict(outside(tmp_path, **env)))
    (folder,) = (tmp_path / "elsewhere" / "wandb").glob("offline-run-*")
    found = wandb_run(folder)
    assert (found["id"], found["project"], found["name"]) == ("chosen", "by environment", "mine")


def disabled(folder: str) -> list[str]:
    one, said = courier(folder, offline=False)
    one.record(1, {"loss": 1.0})
    end(one)
    return said


def test_wandb_mode_can_disable_it(tmp_path: Path) -> None:
    assert run_ranks(disabled, 1, str(tmp_path), env=dict(outside(tmp_path, WANDB_MODE="disabled"))) == [[]]


def beside_another(folder: str) -> tuple[bool, Any]:
    import wandb

    os.chdir(folder)
    theirs = wandb.init(mode="offline", project="theirs", settings=wandb.Settings(silent=True, console="off"))
    one, said = courier(f"{folder}/ours", offline=True)
    one.record(1, {"loss": 1.0})
    end(one)
    alive = wandb.run is theirs
    theirs.log({"own": 1.0})
    theirs.finish()
    wandb.teardown()
    return alive, said


def test_a_run_of_the_users_goes_on(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    assert run_ranks(beside_another, 1, str(tmp_path)) == [(True, [])]
    (ours,) = (tmp_path / "ours" / "wandb").glob("offline-run-*")
    assert wandb_run(ours)["history"][1]["loss"] == 1.0
    (theirs,) = (tmp_path / "wandb").glob("offline-run-*")
    assert wandb_run(theirs)["history"][0]["own"] == 1.0
