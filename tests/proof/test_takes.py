"""One take: how it ended, what it leaves, and what it cannot do to the user's folder. Real launches of a few ranks."""

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.proof import takes
from lockstep.proof.modes import Mode
from lockstep.proof.takes import Settings, open_studio, remove, workspace_of
from lockstep.trace.events import Step
from lockstep.trace.script import Program
from tests import small_training
from tests.proof.apart import apart


def taken(script: Path, num_ranks: int, settings: Settings, mode: Mode, steps: int | None = None) -> dict[str, Any]:
    """What a take of the script says."""
    with open_studio(settings) as studio:
        take = studio.take("a take", Program(script, ("--x",), script.parent), num_ranks, mode, steps=steps)
        home = take.folder.parent
        found = {
            "name": take.name,
            "problem": take.problem,
            "at": take.at,
            "cut": take.cut,
            "output": take.output,
            "ranks": take.trace.num_ranks,
            "steps": [list(rank.of(Step)) for rank in take.trace.ranks],
            "ends": [rank.end.how if rank.end else "" for rank in take.trace.ranks],
            "argv": [rank.start.argv for rank in take.trace.ranks],
            "copied": any(workspace_of(take).rglob(script.name)),
            "kept": studio.takes == [take],
            "left": take.left,
            "over": take.over,
        }
        remove(take)
        found["removed"] = not workspace_of(take).exists() and take.folder.exists()
    found["gone"] = not home.exists()
    return found


def run(tmp_path: Path, script: Path, num_ranks: int = 2, mode: Mode = Mode(), **settings: Any) -> dict[str, Any]:
    steps = settings.pop("steps", None)
    found: dict[str, Any] = apart(
        taken, script, num_ranks, Settings(**settings), mode, steps, folder=tmp_path, timeout_s=60
    )
    assert found["gone"]
    return found


def line_of(script: Path, code: str) -> int:
    return next(number for number, line in enumerate(script.read_text().splitlines(), 1) if code in line)


def test_what_a_take_says(tmp_path: Path) -> None:
    script = small_training.write(tmp_path / "here" / "train.py", 'print(f"here is rank {rank} in {os.getcwd()}")')
    found = run(tmp_path, script)
    assert (found["name"], found["problem"], found["cut"], found["ranks"]) == ("a take", "", "", 2)
    assert found["ends"] == ["returned", "returned"]
    assert found["output"] == tuple(f"here is rank {rank} in {script.parent}\n" for rank in (0, 1))
    assert {step.at for steps in found["steps"] for step in steps} == {
        f"{script}:{line_of(script, 'optimizer.step()')}"
    }
    assert found["argv"] == [("--x",), ("--x",)]
    assert found["copied"]
    assert found["kept"]
    assert found["removed"]
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_gradients_can_be_averaged_over_the_ranks(tmp_path: Path) -> None:
    """The wrapper is taken away, so that each rank has a gradient of its own."""
    script = small_training.write(tmp_path / "here" / "train.py")
    script.write_text(script.read_text().replace("model = DistributedDataParallel(model)", "pass"))
    apart_, averaged = (run(tmp_path, script, mode=Mode(averaged=one), steps=2) for one in (False, True))
    assert apart_["steps"][0][0].grads != apart_["steps"][1][0].grads
    assert averaged["steps"][0][0].grads == averaged["steps"][1][0].grads
    assert averaged["ends"] == ["enough", "enough"]


PROBLEMS = [
    ("raise KeyError('sorry')", "rank 0 raised KeyError: 'sorry'", True),
    ("os._exit(3)", "rank 0 was gone in the middle, with exit code 3", False),
    ("os.kill(os.getpid(), 9)", "rank 0 was gone in the middle, with signal 9", False),
    ("raise SystemExit('no data')", "rank 0 left with exit code 1: no data", True),
    ("raise SystemExit(0)", "", False),
]


@pytest.mark.parametrize(("code", "problem", "told"), PROBLEMS, ids=[row[0] for row in PROBLEMS])
def test_why_it_did_not_run(tmp_path: Path, code: str, problem: str, told: bool) -> None:
    script = small_training.write(tmp_path / "here" / "train.py")
    text = script.read_text().replace("torch.manual_seed(0)", code)
    script.write_text(text)
    found = run(tmp_path, script, 1)
    assert found["problem"] == problem
    if told:
        assert found["at"] == f"{script}:{line_of(script, code)}"


@pytest.mark.alone
def test_a_script_that_only_waits_is_stuck(tmp_path: Path) -> None:
    script = small_training.write(tmp_path / "here" / "train.py", before="print('waits'); time.sleep(60)")
    began = time.monotonic()
    found = run(tmp_path, script, 1, quiet_s=1.0)
    assert (found["cut"], found["problem"]) == ("stuck", "no rank did anything for a long time")
    assert time.monotonic() - began < 15


def test_a_script_that_writes_too_much(tmp_path: Path) -> None:
    script = small_training.write(tmp_path / "here" / "train.py", before="open('x', 'wb').write(bytes(10**6))")
    script.write_text(script.read_text() + "\ntime.sleep(60)\n")
    found = apart(small_disk, script, folder=tmp_path)
    assert (found["cut"], found["problem"]) == ("disk", "it wrote gigabytes")


def small_disk(script: Path) -> dict[str, Any]:
    takes.WRITTEN = 500_000
    return taken(script, 1, Settings(), Mode())


def test_a_file_that_goes_while_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").mkdir()
    for name in ("stays", "goes"):
        (tmp_path / name).write_bytes(bytes(8192))
    (tmp_path / "trace" / "rank-00000.tensors").write_bytes(bytes(8192))
    lstat = os.lstat

    def look(path: Any) -> os.stat_result:
        (tmp_path / "goes").unlink(missing_ok=True)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", look)
    assert 8192 <= takes._written(tmp_path) < 3 * 8192


def test_processes_that_ranks_leave_are_named_and_ended(tmp_path: Path) -> None:
    code = "import subprocess, time; "
    start = 'helper = subprocess.Popen(["sleep", "61.25"], start_new_session=True)'
    script = small_training.write(tmp_path / "here" / "train.py", f"{code}{start}")
    before = time.time()
    found = run(tmp_path, script)
    assert found["left"] == ("sleep 61.25", "sleep 61.25")
    assert before < found["over"] < time.time()
    assert not [one for one in psutil.process_iter() if "61.25" in _words(one)]
    assert run(tmp_path / "again", small_training.write(tmp_path / "again" / "b" / "train.py"))["left"] == ()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_no_standard_input_at_all(tmp_path: Path) -> None:
    script = small_training.write(tmp_path / "here" / "train.py")
    assert apart(without_input, script, folder=tmp_path)["problem"] == ""


def without_input(script: Path) -> dict[str, Any]:
    os.close(0)
    return taken(script, 1, Settings(), Mode())
