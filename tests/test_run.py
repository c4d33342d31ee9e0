"""`lockstep run`: mistakes, exit codes, logs, signals, restarts, and that the folder for the trace loses nothing."""

import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

import lockstep
from lockstep.core.errors import UserError
from lockstep.core.outcome import Exit
from lockstep.run import check_script, prepare_folder
from lockstep.trace.events import End, Step
from lockstep.trace.trace import read_trace
from tests import small_training
from tests.commands import Command, Done
from tests.commands import lockstep as run
from tests.permissions import obey_permissions

OURS = str(Path(lockstep.__file__).parent)


def check(done: Done, code: Exit, must: str = "") -> None:
    """must: words with `|` between them."""
    assert done.code == code, done.output
    for one in filter(None, must.split("|")):
        assert one in done.output, f"{one!r} is not in:\n{done.output}"
    assert OURS not in done.output


MISTAKES = [
    ("missing", ["--record", "out", "nowhere.py"], "nowhere.py is not there"),
    ("a folder", ["--record", "out", "folder.py"], "folder.py is a folder"),
    ("no Python file", ["--record", "out", "notes.txt"], "notes.txt is no Python file"),
    ("steps of no trace", ["--steps", "3", "train.py"], "without --record|--record DIR"),
    ("a trace of two machines", ["--record", "out", "--nnodes", "2", "train.py"], "one run on one machine"),
    ("no number for this machine", ["--nnodes", "2", "train.py"], "2 nodes, and this one has no number|--node-rank"),
    ("a number beyond", ["--nnodes", "2", "--node-rank", "2", "train.py"], "a number from 0 to 1"),
    ("no address", ["--nnodes", "2", "--node-rank", "1", "train.py"], "does not know where node 0 is|--master"),
    ("no machines", ["--nnodes", "0", "train.py"], "--nnodes"),
    ("a trace onto a file", ["--record", "notes.txt", "train.py"], "notes.txt cannot be used: File exists"),
    ("a trace below a file", ["--record", "notes.txt/out", "train.py"], "notes.txt/out cannot be used"),
    ("no ranks", ["--record", "out", "--nproc", "0", "train.py"], "--nproc 0|a whole number from 1"),
    ("ranks in words", ["--record", "out", "--nproc", "two", "train.py"], "--nproc two"),
    ("no steps", ["--record", "out", "--steps", "0", "train.py"], "--steps"),
    ("nothing", [], "SCRIPT"),
]


@pytest.mark.parametrize(("argv", "must"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_told_before_anything_starts(tmp_path: Path, argv: list[str], must: str) -> None:
    folder = tmp_path / "here"
    (folder / "folder.py").mkdir(parents=True)
    (folder / "notes.txt").touch()
    (folder / "train.py").touch()
    check(run(folder, "run", *argv), Exit.MISUSE, must)
    assert sorted(path.name for path in folder.iterdir()) == ["folder.py", "notes.txt", "train.py"]


def test_what_may_not_be_read_or_written(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "closed").mkdir(mode=0o500)
    argv = ("run", "--record", "closed/out", "train.py")
    done = Command(folder, *argv, before=obey_permissions).wait()
    check(done, Exit.MISUSE, "closed/out cannot be used: Permission denied")
    (folder / "train.py").chmod(0)
    done = Command(folder, "run", "--record", "out", "train.py", before=obey_permissions).wait()
    check(done, Exit.MISUSE, "train.py|not readable")


def test_an_older_trace_goes_and_everything_else_stays(tmp_path: Path) -> None:
    for name in ("rank-00000.jsonl", "rank-00007.tensors", "launcher.jsonl", "notes.txt", "rank-a.txt"):
        (tmp_path / name).touch()
    prepare_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "rank-a.txt"]
    prepare_folder(tmp_path / "new" / "deep")
    assert (tmp_path / "new" / "deep").is_dir()


def test_a_script_that_is_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    check_script(tmp_path / "train.py")
    (tmp_path / "link.py").symlink_to("train.py")
    check_script(tmp_path / "link.py")
    (tmp_path / "itself.py").symlink_to("itself.py")
    with pytest.raises(UserError, match="is not there"):
        check_script(tmp_path / "itself.py")


def test_ranks_are_recorded_where_the_script_is_started(tmp_path: Path) -> None:
    """`run` is no proof: the script runs in the user's folder, and gets all that stands behind it."""
    folder = tmp_path / "here"
    after = 'import sys; open(f"{rank}.txt", "w").write(" ".join(sys.argv[1:]))'
    small_training.write(folder / "train.py", after=after)
    done = run(folder, "run", "--record", "out", "--nproc", "2", "train.py", "--resume", "--", "-x", "--nproc=3")
    check(done, Exit.DONE)
    assert (folder / "1.txt").read_text() == "--resume -- -x --nproc=3"
    trace = read_trace(folder / "out")
    assert trace.num_ranks == 2
    assert [len(one) for one in trace.each(Step)] == [4, 4]
    assert [rank.end.how for rank in trace.ranks if rank.end] == ["returned", "returned"]


def test_one_rank_is_plain_python_and_steps_are_a_limit(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    small_training.write(folder / "train.py", before="assert not distributed")
    check(run(folder, "run", "--record", "out", "--nproc", "1", "--steps", "3", "train.py"), Exit.DONE)
    (rank,) = read_trace(folder / "out").ranks
    assert len(list(rank.of(Step))) == 3
    assert [end.how for end in rank.of(End)] == ["enough"]


def test_a_script_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").write_text("x = 1\nraise KeyError('sorry')\n")
    done = run(folder, "run", "--record", "out", "--nproc", "1", "train.py")
    check(done, Exit.FAILED, "sorry|train.py")
    end = read_trace(folder / "out").ranks[0].end
    assert end is not None
    assert (end.how, end.error) == ("raised", "KeyError: 'sorry'")


def write(folder: Path, text: str) -> Path:
    """A script `train.py` in the folder; its ranks have joined, and it leaves `ready-R` files by `ready()`."""
    folder.mkdir()
    head = """
import os, signal, sys, time
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
def ready(): Path(f"ready-{rank}").touch()
"""
    (folder / "train.py").write_text(head + text)
    return folder


def log(folder: Path, rank: int) -> str:
    (found,) = folder.glob(f"runs/train-*/logs/rank-0000{rank}.log")
    return found.read_text()


def test_a_plain_run(tmp_path: Path) -> None:
    """What torchrun's ranks see; rank 0 on the screen, and a log file for each."""
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK TORCHELASTIC_RESTART_COUNT OMP_NUM_THREADS"
    text = f"print(*(os.environ[name] for name in {names!r}.split()), sys.argv[1:])\n"
    folder = write(tmp_path / "here", text)
    done = run(folder, "run", "--nproc", "2", "train.py", "--nproc", "7", env={"OMP_NUM_THREADS": "3"})
    check(done, Exit.DONE)
    assert done.output == "0 2 0 2 0 0 3 ['--nproc', '7']\n"
    assert log(folder, 0).endswith("\n0 2 0 2 0 0 3 ['--nproc', '7']\n")
    assert log(folder, 1).endswith("\n1 2 1 2 0 0 3 ['--nproc', '7']\n")


def test_all_ranks_on_the_screen_and_logs_where_they_are_wanted(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", "print('hello')\n")
    done = run(folder, "run", "--nproc", "2", "--all-ranks", "--log-dir", "out/logs", "train.py")
    check(done, Exit.DONE, "[rank 0] hello|[rank 1] hello")
    assert (folder / "out/logs/rank-00001.log").read_text().endswith("hello\n")
    assert not (folder / "runs").exists()


def test_a_failure_names_rank_line_and_what_the_others_did(tmp_path: Path) -> None:
    text = "if rank == 1:\n    raise ValueError('label 12')\ndist.barrier()\n"
    done = run(write(tmp_path / "here", text), "run", "--nproc", "2", "train.py")
    must = "Rank 1 failed first: ValueError: label 12|Where: train.py:9 in <module>|barrier (train.py:10)"
    check(done, Exit.FAILED, must)


def test_a_restart_starts_all_ranks_again(tmp_path: Path) -> None:
    text = "count = os.environ['TORCHELASTIC_RESTART_COUNT']\nprint('attempt', count, flush=True)\n"
    text += "if rank == 1 and count != '2':\n    os.kill(os.getpid(), 9)\ndist.barrier()\nprint('through')\n"
    folder = write(tmp_path / "here", text)
    done = run(folder, "run", "--nproc", "2", "--restarts", "2", "train.py")
    check(done, Exit.DONE, "Rank 1 was killed by SIGKILL|Restart 1 of 2.|Restart 2 of 2.|through")
    assert [line for line in done.stdout.split("\n") if "attempt" in line] == ["attempt 0", "attempt 1", "attempt 2"]
    done = run(folder, "run", "--nproc", "2", "--restarts", "1", "train.py")
    check(done, Exit.FAILED, "Restart 1 of 1.")
    assert done.stderr.count("was killed by SIGKILL") == 2


HANDLES = """
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
ready()
while not asked:
    time.sleep(0.01)
print("saved", rank, flush=True)
sys.exit(CODE)
"""


@pytest.mark.parametrize("code", [0, 75])
def test_a_script_that_handles_the_signal_gets_it(tmp_path: Path, code: int) -> None:
    folder = write(tmp_path / "here", HANDLES.replace("CODE", str(code)))
    command = Command(folder, "run", "--nproc", "2", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, signal.SIGUSR1)
    check(command.wait(), Exit.PREEMPTED, "saved 0|Every rank ended by itself after SIGUSR1")
    assert "saved 1" in log(folder, 1)


def test_a_script_that_fails_after_the_signal_is_not_preempted(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", HANDLES.replace("CODE", "4"))
    command = Command(folder, "run", "--nproc", "2", "--restarts", "3", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, signal.SIGUSR1)
    check(command.wait(), Exit.FAILED, "called sys.exit(4)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_script_that_does_not_handle_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    folder = write(tmp_path / "here", "ready()\ntime.sleep(60)\n")
    command = Command(folder, "run", "--nproc", "2", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, number)
    check(command.wait(10), Exit.FAILED, f"Ended by {number.name}: all ranks were ended at once, nothing was saved.")


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    text = "signal.signal(signal.SIGTERM, lambda *_: Path(f'heard-{rank}').touch())\nready()\ntime.sleep(60)\n"
    folder = write(tmp_path / "here", text)
    command = Command(folder, "run", "--nproc", "2", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, signal.SIGTERM)
    command.until(lambda: all((folder / f"heard-{rank}").exists() for rank in (0, 1)))
    time.sleep(1.1)
    os.kill(command.pid, signal.SIGTERM)
    check(command.wait(10), Exit.FAILED, "Ended by SIGTERM")


def test_the_same_signal_twice_at_once_is_one(tmp_path: Path) -> None:
    """Slurm sends SIGTERM to a job step twice: for the step and for the job."""
    folder = write(tmp_path / "here", HANDLES.replace("CODE", "75"))
    command = Command(folder, "run", "--nproc", "2", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    for _ in range(2):
        os.kill(command.pid, signal.SIGUSR1)
        time.sleep(0.1)
    assert command.wait(10).code == Exit.PREEMPTED


def test_a_rank_that_has_saved_waits_for_the_one_that_still_saves(tmp_path: Path) -> None:
    """Exit code 75 after the signal is no failure: the others are left alone."""
    text = """
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
ready()
while not asked:
    time.sleep(0.01)
if rank == 0:
    time.sleep(3)
    Path("saved.txt").touch()
sys.exit(75)
"""
    folder = write(tmp_path / "here", text)
    command = Command(folder, "run", "--nproc", "2", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, signal.SIGUSR1)
    check(command.wait(), Exit.PREEMPTED, "Every rank ended by itself")
    assert (folder / "saved.txt").exists()


def test_what_a_killed_rank_has_started_in_a_session_of_its_own_is_ended(tmp_path: Path) -> None:
    text = """
import subprocess
if rank == 1:
    child = subprocess.Popen(["sleep", "77"], start_new_session=True)
    Path("child").write_text(str(child.pid))
    os.kill(os.getpid(), 9)
time.sleep(60)
"""
    folder = write(tmp_path / "here", text)
    check(run(folder, "run", "--nproc", "2", "train.py"), Exit.FAILED, "Rank 1 was killed by SIGKILL")
    assert not psutil.pid_exists(int((folder / "child").read_text()))


def test_an_error_in_a_collective_that_the_script_catches_is_over(tmp_path: Path) -> None:
    text = """
if rank == 0:
    try:
        dist.broadcast_object_list([lambda: 1], src=0)
    except Exception:
        print("caught", flush=True)
    time.sleep(4)
    print("through")
"""
    check(run(write(tmp_path / "here", text), "run", "--nproc", "2", "train.py"), Exit.DONE, "caught|through")


def nobody_listens() -> None:
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(reader)


def test_a_run_whose_terminal_is_gone_goes_on(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for step in range(5):\n    model(torch.ones(1, 1)).sum().backward()\n    optimizer.step()\n"
    text += "time.sleep(6)\nPath(f'end-{rank}').touch()\n"
    folder = write(tmp_path / "here", text)
    done = Command(folder, "run", "--nproc", "2", "train.py", before=nobody_listens).wait()
    assert done.code == Exit.DONE
    assert (folder / "end-0").exists() and (folder / "end-1").exists()


def test_a_pause_of_the_launcher_is_no_silence_of_the_ranks(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for step in range(5):\n    model(torch.ones(1, 1)).sum().backward()\n    optimizer.step()\n"
    text += "ready()\ntime.sleep(2)\n"
    folder = write(tmp_path / "here", text)
    command = Command(folder, "run", "--nproc", "2", "--stall-timeout", "5", "train.py")
    command.until(lambda: all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    os.kill(command.pid, signal.SIGTSTP)
    time.sleep(7)
    os.kill(command.pid, signal.SIGCONT)
    done = command.wait()
    check(done, Exit.DONE)
    assert "does not advance" not in done.output and "do not advance" not in done.output


def test_a_machine_that_is_done_hears_how_the_other_fails(tmp_path: Path) -> None:
    """And it hears a signal while it waits."""
    text = "if rank == 1:\n    time.sleep(3)\n    raise ValueError('late')\n"
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = [
        Command(
            write(tmp_path / f"node-{node}", text),
            *("run", "--nproc", "1", "--nnodes", "2", "--node-rank", str(node), "--master", master, "train.py"),
        )
        for node in (0, 1)
    ]
    for command in nodes:
        check(command.wait(30), Exit.FAILED, "Rank 1 failed: ValueError: late|Others: rank 0: done")


@pytest.mark.slow
def test_twenty_launches_at_the_same_time(tmp_path: Path) -> None:
    """No port can collide: none is chosen before it is bound."""
    text = "value = torch.ones(1) * rank\ndist.all_reduce(value)\nprint('sum', value.item())\n"
    commands = [
        Command(write(tmp_path / f"run-{number}", text), "run", "--nproc", "2", "train.py") for number in range(20)
    ]
    for command in commands:
        check(command.wait(), Exit.DONE, "sum 1.0")
