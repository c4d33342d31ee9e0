import json
import multiprocessing
import tempfile
from pathlib import Path

import pytest

from lockstep.core.errors import RunError, UserError
from lockstep.launch import launch_local
from tests.launch.conftest import Launch, Launcher

RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}


def environments(run: Launcher) -> dict[str, dict[str, object]]:
    """What `show_environment` printed; ranks share a stream, so a line may end where the next begins."""
    shown: dict[str, dict[str, object]] = {}
    text = run.stdout.replace("\n", "")
    while text:
        one, end = json.JSONDecoder().raw_decode(text)
        shown, text = shown | one, text[end:]
    return shown


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_all_done(launch: Launch, method: str) -> None:
    run = launch("show_environment", "${local_rank} $$", start_method=method)
    assert run.wait(60) == 0
    assert run.stderr == ""
    shown = environments(run)
    assert shown.keys() == {"0", "1"}
    assert shown["1"].items() >= RANK_1.items()
    assert shown["1"]["MASTER_ADDR"] == "127.0.0.1"
    assert shown["1"]["GLOO_SOCKET_IFNAME"]
    assert shown["1"]["starts workers by"] == multiprocessing.get_start_method()
    assert shown["1"]["args"] == ["${local_rank} $$"]  # torch's agent would have replaced it
    assert not run.work_dir.exists()


def test_one_rank_is_a_launch_like_any_other(launch: Launch) -> None:
    run = launch("show_environment", num_ranks=1)
    assert run.wait() == 0
    assert environments(run)["0"]["WORLD_SIZE"] == "1"


def test_the_same_mistake_on_all_ranks_is_printed_once(launch: Launch) -> None:
    run = launch("user_error_on", [0, 1])
    assert run.wait() == 2
    assert run.stderr == "the dataset is empty.\n  Must hold: at least one sample\n  Next: check data.path\n"
    assert not run.work_dir.exists()


def test_a_mistake_on_one_rank_names_it(launch: Launch) -> None:
    run = launch("user_error_on", [1])
    assert run.wait() == 2
    assert run.stderr.startswith("Rank 1: the dataset is empty.\n")


def test_a_mistake_in_a_loaders_worker_is_as_readable(launch: Launch) -> None:
    run = launch("broken_sample_in_worker")
    assert run.wait() == 2
    assert run.stderr == "sample 9 is broken.\n  Must hold: every sample can be read\n  Next: look at it\n"


def test_a_run_folder_that_cannot_be_written(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "run").touch()  # a file: also root cannot make a folder below it
    run = launch("raise_on", 1)
    assert run.wait() == 1
    assert run.stderr.startswith("Rank 1 failed first: ValueError")
    assert "Logs:" not in run.stderr


def test_what_lies_in_the_run_folder_stays(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "run" / "logs").mkdir(parents=True)
    run = launch("raise_on", 1)
    assert run.wait() == 1
    assert f"  Logs: {run.work_dir / 'logs'} and {run.work_dir / 'failures'}\n" in run.stderr
    run = launch("show_environment")
    assert run.wait() == 0
    assert sorted(path.name for path in run.work_dir.iterdir()) == ["failures", "logs"]


def test_no_ranks_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 ranks were asked for"):
        launch_local(print, (), 0, work_dir=tmp_path)


def test_no_temporary_folder_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(RunError, match="2 processes could not be started"):
        launch_local(print, (), 2, work_dir=tmp_path)
