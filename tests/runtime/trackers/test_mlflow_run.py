"""MLflow: where it writes, and what happens where the server is not there, goes away, or the disk is full."""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.trackers import About
from lockstep.runtime.trackers import mlflow_run as module
from lockstep.runtime.trackers.courier import Courier
from lockstep.runtime.trackers.memory import Memory
from lockstep.runtime.trackers.mlflow_run import MlflowRun, named, plain, tracking_uri
from tests.disks import small_disk
from tests.ranks import run_ranks
from tests.runtime.trackers.readers import mlflow_runs

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own imports


def test_a_folder_holds_a_database_and_a_uri_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tracking_uri("runs/all") == f"sqlite:///{tmp_path}/runs/all/mlflow.db" and Path("runs/all").is_dir()
    for uri in ("http://gpu-a:5000", "sqlite:///x.db", "postgresql://a/b", "databricks", "databricks://me"):
        assert tracking_uri(uri) == uri
    Path("file").touch()
    with pytest.raises(UserError, match=r"the folder of log\.mlflow cannot be made: Not a directory"):
        tracking_uri("file/in")


def test_names_and_values_are_made_to_fit() -> None:
    assert named("val/iou/traffic light, red (é)") == "val/iou/traffic light_ red _é_" and len(named("x" * 300)) == 250
    assert [plain(value) for value in (None, True, 0.1, "text", [1, "a"])] == [
        "null",
        "true",
        "0.1",
        "text",
        '[1, "a"]',
    ]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROBE_S", 0.3)
    start = time.monotonic()
    with pytest.raises(RunError, match="cannot be reached"):
        module._check_reachable(f"http://127.0.0.1:{closed_port()}")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RunError, match="does not answer"):
        module._check_reachable(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - start < 5


class _Server(BaseHTTPRequestHandler):
    """Knows the few requests of a run; `hang` makes it deaf."""

    hang = threading.Event()
    steps: list[int] = []  # noqa: RUF012  # of the one server there is

    def do_GET(self) -> None:
        self._answer({"run": self._run()})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.hang.is_set():
            with suppress(OSError):
                self.connection.recv(1)
            return
        self.steps.extend(int(metric["step"]) for metric in body.get("metrics", ()))
        self._answer({"run": self._run(), "run_info": self._run()["info"]})

    def _run(self) -> dict[str, Any]:
        info = {
            "run_id": "abc",
            "run_uuid": "abc",
            "experiment_id": "0",
            "status": "RUNNING",
            "lifecycle_stage": "active",
        }
        return {"info": info, "data": {}}

    def _answer(self, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


def courier(where: str, folder: str) -> tuple[Courier, list[str]]:
    """A begun way to MLflow, and what is said from now on."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lockstep").addHandler(handler)
    one = Courier(MlflowRun(where, None), Memory(Path(folder), go_on=False))
    one.begin(About("name", Path(folder), {"lr": 0.1}, {"num_ranks": 2}))
    return one, said


def until(reached: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)


def server_hangs(folder: str) -> tuple[list[int], list[str], float]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    one, said = courier(f"http://127.0.0.1:{server.server_address[1]}", folder)
    one.record(1, {"loss": 1.0})
    until(lambda: _Server.steps == [1])
    _Server.hang.set()
    start = time.monotonic()
    for step in range(2, 50):
        one.record(step, {"loss": 1.0})
    one.finish("done", {})
    one.wait(time.monotonic() + 1)
    return _Server.steps, said, time.monotonic() - start


def test_a_server_that_goes_silent_costs_no_more_than_the_wait_at_the_end(tmp_path: Path) -> None:
    ((steps, said, seconds),) = run_ranks(server_hangs, 1, str(tmp_path))
    assert steps == [1] and seconds < 4
    assert len(said) == 1 and said[0].startswith("MLflow has not taken all of the run in time: 4")


def fill(folder: str, elsewhere: str) -> list[str]:
    one, said = courier(folder, elsewhere)
    with suppress(OSError), Path(folder, "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(b"x" * 4096)
    for step in range(3):
        one.record(step, {f"value/{name}": 1.0 for name in range(200)})
    one.finish("done", {})
    one.wait(time.monotonic() + 20)
    return said


def test_a_full_disk_costs_records_and_one_warning(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "4m"):
        (said,) = run_ranks(fill, 1, str(tmp_path / "small"), str(tmp_path))
    assert "training goes on" in said[0] and "disk is full" in said[0]
    assert said[1:] == ["MLflow has missed 3 records"]


def by_environment(folder: str) -> list[dict[str, Any]]:
    os.chdir(folder)
    for name in (None, "chosen"):
        one = Courier(MlflowRun("on", name), Memory(Path(folder), go_on=False))
        one.begin(About("name", Path(folder), {}, {}))
        one.finish("failed" if name else "preempted", {})
        one.wait(time.monotonic() + 20)
    return mlflow_runs(Path("env.db"))


def test_its_own_environment_variables_hold_where_the_config_says_nothing(tmp_path: Path) -> None:
    env = {"MLFLOW_TRACKING_URI": "sqlite:///env.db", "MLFLOW_EXPERIMENT_NAME": "by environment"}
    (runs,) = run_ranks(by_environment, 1, str(tmp_path), env=env)
    found = {run["project"]: (run["status"], run["tags"]["ending"]) for run in runs}
    assert found == {"by environment": ("KILLED", "preempted"), "chosen": ("FAILED", "failed")}


def unknown_scheme(folder: str) -> str:
    with pytest.raises(UserError) as caught:
        courier("htp://server", folder)
    return str(caught.value)


def test_a_scheme_that_mlflow_does_not_know_is_the_users_mistake(tmp_path: Path) -> None:
    assert "MLflow has no store for 'htp://server'" in run_ranks(unknown_scheme, 1, str(tmp_path))[0]
