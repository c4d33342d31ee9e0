"""`lockstep run`: mistakes, exit codes, and that the folder for the trace loses nothing."""

from pathlib import Path

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
    ("no folder for the trace", ["train.py"], "no --record|lockstep run --record DIR SCRIPT"),
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
