import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.launch import record
from lockstep.launch.guard import failure_of, guarded, is_consequence
from tests.launch.conftest import REPO, Launch

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "


def fail(error: BaseException) -> None:
    raise error


def test_done_and_failed_leave_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(record.FAILURES_ENV, str(tmp_path))
    assert guarded(lambda: None, (), 0) is None
    failure = guarded(fail, (ValueError("no"),), 1)
    assert failure is not None
    assert record.is_done(tmp_path, 0) and not record.is_done(tmp_path, 1)
    assert record.read_failures(tmp_path) == [failure]
    assert "ValueError: no" in record.traceback_file(tmp_path, 1).read_text()


@pytest.mark.parametrize(
    "error, kind, message, exit_code",
    [
        (UserError("Empty.\n  Next: x"), "user", "Empty.\n  Next: x", 2),
        (RunError("Full."), "run", "Full.", 1),
        (ValueError("no"), "exception", "ValueError: no", 1),
        (MemoryError(), "exception", "MemoryError", 1),
        (
            RuntimeError("shape\nException raised from f (most recent call first):\n"),
            "exception",
            "RuntimeError: shape",
            1,
        ),
        (SystemExit(3), "exit", "called sys.exit(3)", 3),
        (SystemExit("stop"), "exit", "called sys.exit('stop')", 1),
        (KeyboardInterrupt(), "interrupt", "Interrupted.", 130),
        (RuntimeError(f"{GLOO}Broken pipe"), "consequence", f"RuntimeError: {GLOO}Broken pipe", 1),
    ],
)
def test_kinds(error: BaseException, kind: str, message: str, exit_code: int) -> None:
    failure = guarded(fail, (error,), 0)
    assert failure is not None
    assert (failure.kind, failure.message, failure.exit_code) == (kind, message, exit_code)
    assert failure.where.endswith(" in fail")


@pytest.mark.parametrize("code", [None, 0])
def test_leaving_by_sys_exit_without_an_error_is_leaving_early(code: Any) -> None:
    failure = guarded(fail, (SystemExit(code),), 0)
    assert failure is not None
    assert (failure.kind, failure.exit_code) == ("exit", 1)
    assert failure.message == f"called sys.exit({code!r})"


def test_notes_say_what_the_rank_was_doing() -> None:
    error = ValueError("no")
    error.add_note("training, step 3")
    assert failure_of(error, 0).phase == "training, step 3"


@pytest.mark.parametrize(
    "text",
    [
        GLOO + "Connection reset by peer",
        GLOO + "Broken pipe",
        "[gloo] Timed out waiting 1800000ms for recv operation to complete",
        "NCCL error: remote process exited or there was a network error, NCCL version 2.27",
        "wait timeout after 300000ms, keys: /default_pg/0//cpu//0/0, TCPStore",
        "[c10d] failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    ],
)
def test_what_only_says_that_another_rank_is_gone(text: str) -> None:
    assert is_consequence(RuntimeError(text))
    wrapped = RunError("The ranks could not agree.")
    wrapped.__cause__ = RuntimeError(text)
    assert is_consequence(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DataLoader timed out after 5 seconds"),
        RuntimeError("restore timed out"),
        ConnectionResetError("socket: connection reset by peer"),
        RunError("gloo: connection closed by peer"),
        RuntimeError("gloo: mismatched shapes"),
    ],
)
def test_what_is_a_cause_of_its_own(error: Exception) -> None:
    assert not is_consequence(error)


def test_the_ranks_log_gets_the_whole_traceback(caplog: pytest.LogCaptureFixture) -> None:
    ours = logging.getLogger("lockstep")
    ours.addHandler(caplog.handler)
    try:
        guarded(fail, (ValueError("no"),), 4)
    finally:
        ours.removeHandler(caplog.handler)
    line = caplog.records[0]
    assert "rank 4 failed: Traceback" in line.getMessage()
    assert line.file_only is True  # type: ignore[attr-defined]


def test_a_log_of_the_scripts_own_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    guarded(fail, (ValueError("no"),), 4)
    assert caplog.records == []


class MuteError(Exception):
    def __str__(self) -> str:
        raise TypeError


def test_an_error_that_cannot_say_what_it_is() -> None:
    failure = guarded(fail, (MuteError(),), 0)
    assert failure is not None
    assert failure.message == "MuteError: (its text cannot be had: TypeError)"


def test_alone_an_explained_error_is_printed_without_a_traceback(launch: Launch) -> None:
    run = launch("user_error_on", [0], alone=True)
    assert run.wait() == 2
    assert run.stderr == "the dataset is empty.\n  Must hold: at least one sample\n  Next: check data.path\n"


def test_alone_an_exception_is_one_block(launch: Launch) -> None:
    run = launch("broken_number", alone=True)
    assert run.wait() == 1
    assert run.stderr.startswith("The run failed: ValueError: ")
    assert "targets.py" in run.stderr and "guard.py" not in run.stderr


def test_alone_and_done(launch: Launch) -> None:
    run = launch("linger_in_thread", alone=True)
    assert run.wait() == 0
    assert run.ready() == [0]


@pytest.mark.slow
@pytest.mark.parametrize("ranks, text", [("[0, 1]", "the dataset is empty."), ("[1]", "Rank 1: the dataset is empty.")])
def test_under_torchrun_a_mistake_is_printed_once(tmp_path: Path, ranks: str, text: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from lockstep.launch import run_as_rank\n"
        f"from tests.launch.targets import user_error_on\nrun_as_rank(user_error_on, ({ranks},))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    path = os.pathsep.join(str(REPO / part) for part in ("src", ""))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert done.stderr.count("the dataset is empty.") == 1
    assert f"{text}\n  Must hold: at least one sample\n" in done.stderr


def test_a_preemption_is_said_once_and_is_no_failure(tmp_path: Path) -> None:
    code = (
        "from lockstep.launch import run_as_rank\nfrom tests.launch.targets import preempted\nrun_as_rank(preempted)\n"
    )
    for rank, told in ((0, "Preempted after saving step 3.\n"), (1, "")):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr, done.stdout) == (75, told, "")
