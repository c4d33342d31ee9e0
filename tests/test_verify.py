"""`lockstep verify` and `lockstep.verify(...)`: what is asked, how it ends, and that nothing of the user's changes."""

import os
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.core.errors import UserError
from lockstep.core.outcome import Exit
from lockstep.core.proof import Proof, Rung, Status
from lockstep.core.report.as_json import from_json
from lockstep.verify import words
from tests import small_training
from tests.commands import Command, Done
from tests.commands import lockstep as run
from tests.permissions import obey_permissions

OURS = str(Path(lockstep.__file__).parent)


def check(done: Done, code: Exit, must: str = "") -> None:
    """must: words with `|` between them."""
    assert done.code == code, done.output
    for one in filter(None, must.split("|")):
        # A long path may be broken anywhere by the end of a line.
        assert "".join(one.split()) in "".join(done.output.split()), f"{one!r} is not in:\n{done.output}"
    assert "Traceback (most" not in done.output
    assert OURS not in done.output


def seen(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """{path: mode, inode, time, content} of all in a folder, links not followed."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        told = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = told.st_mode, told.st_ino, told.st_mtime_ns, content
    return found


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the commands of a test have their temporary folders: by itself, so that it can be looked at."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class Before:
    """What a command does first; the server that it is forked from may have looked for a temporary folder already."""

    temporary: Path
    obeys: bool = False

    def __call__(self) -> None:
        tempfile.tempdir = str(self.temporary)
        if self.obeys:
            obey_permissions()


def verify(folder: Path, temporary: Path, *argv: str, obeys: bool = False) -> Done:
    done = Command(folder, "verify", *argv, before=Before(temporary, obeys)).wait(120)
    assert left(temporary) == []
    return done


def left(temporary: Path) -> list[str]:
    """Folders of ours."""
    return [path.name for path in temporary.iterdir() if "lockstep" in path.name]


# ---- mistakes: nothing is run ----

MISTAKES = [
    ("missing", ["nowhere.py"], "nowhere.py is not there|check the path"),
    ("a folder", ["."], ". is a folder|a Python file"),
    ("a folder by the name of a script", ["folder.py"], "folder.py is a folder"),
    ("no Python file", ["notes.txt"], "notes.txt is no Python file"),
    ("a name that is too long", ["a" * 300 + ".py"], "File name too long"),
    ("one rank", ["train.py", "--nproc", "1"], "--nproc"),
    ("no steps", ["train.py", "--steps", "0"], "--steps"),
    ("a time below nothing", ["train.py", "--timeout", "-1"], "timeout_s = -1.0|more than 0"),
    ("a time that is no number", ["train.py", "--timeout", "nan"], "timeout_s = nan"),
    ("no code", ["train.py", "--accept", "nonsense"], "accept nonsense|the code of a deviation, as LS116"),
    ("a report into a missing folder", ["train.py", "--html", "no/where.html"], "no is not there|make it first"),
    ("a report onto a folder", ["train.py", "--json", "folder.py"], "folder.py is a folder|a file for the report"),
    ("a report onto this folder", ["train.py", "--sarif", "."], ". is a folder"),
    ("the original missing", ["train.py", "--against", "nowhere.py"], "nowhere.py is not there"),
    ("the original a folder", ["train.py", "--against", "folder.py"], "folder.py is a folder"),
    ("one run to compare", ["--compare", "folder.py"], "--compare with 1 runs|two: --compare RUN RUN"),
    ("three runs to compare", ["--compare", "a", "b", "c"], "--compare with 3 runs"),
    ("runs that are none", ["--compare", "folder.py", "folder.py"], "folder.py"),
    ("an open quote", ["train.py", "--against-args", 'a "b'], "No closing quotation"),
    ("an open quote to resume", ["train.py", "--resume-args", "a 'b"], "No closing quotation"),
    ("a recipe's file missing", ["nowhere.yaml"], "nowhere.yaml does not exist"),
    ("a recipe with an original", ["recipe=points", "--against", "train.py"], "--against with a recipe"),
    ("a recipe without a code", ["recipe=points", "--accept", "x"], "accept x"),
    ("a recipe without time", ["recipe=points", "--timeout", "0"], "timeout_s = 0.0"),
    ("an unknown option", ["train.py", "--epochs", "2"], "No such option: --epochs"),
    ("nothing", [], "PROGRAM"),
]


@pytest.mark.parametrize(("argv", "must"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_told_before_anything_starts(tmp_path: Path, argv: list[str], must: str) -> None:
    folder = tmp_path / "here"
    (folder / "folder.py").mkdir(parents=True)
    (folder / "notes.txt").touch()
    small_training.write(folder / "train.py")
    before = seen(folder)
    done = run(folder, "verify", *argv)
    check(done, Exit.MISUSE)
    for word in must.split("|"):
        assert word in done.output, done.output
    assert seen(folder) == before


def test_what_may_not_be_read_or_written_is_told_before_anything_starts(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / "here"
    script = small_training.write(folder / "train.py")
    (folder / "closed").mkdir(mode=0o500)
    done = verify(folder, temporary, "train.py", "--json", "closed/proof.json", obeys=True)
    check(done, Exit.MISUSE, "closed may not be written to")
    script.chmod(0)
    done = verify(folder, temporary, "train.py", obeys=True)
    check(done, Exit.MISUSE, "train.py may not be read|check its permissions")
    (folder / "closed").chmod(0)
    done = verify(folder, temporary, "closed/train.py", obeys=True)
    check(done, Exit.MISUSE, "closed/train.py cannot be opened: Permission denied")


def test_arguments_in_one_text() -> None:
    assert words(None) is None
    assert words("") == []
    assert words("--a 'b c' d\\ e") == ["--a", "b c", "d e"]
    with pytest.raises(UserError, match="No closing quotation"):
        words("'")


# ---- how it ends ----

LEAVES_TRACES = """
from pathlib import Path
if rank == 0:
    torch.save(torch.zeros(600_000), "large.pt")
    with open("large.txt", "a") as file:
        file.write("more")
    Path("sub/deep/new.txt").write_text("new")
    Path("linked/new.txt").write_text("new")
    Path("linked/old.txt").unlink()
    Path("made").mkdir()
    os.chdir("sub")
    Path("last.txt").write_text("new")
"""


def test_a_right_program_passes_and_leaves_the_folder_as_it_was(tmp_path: Path, temporary: Path) -> None:
    folder, elsewhere = tmp_path / "a=b" / "here", tmp_path / "elsewhere"
    small_training.write(folder / "train.py", "import helper", LEAVES_TRACES)
    (folder / "helper.py").touch()
    (folder / "sub" / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "old.txt").write_text("mine")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "around").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    for name in ("large.pt", "large.txt"):
        (folder / name).write_bytes(bytes(2 << 20))
    os.mkfifo(folder / "pipe")
    before = seen(folder), seen(elsewhere)
    reports = {name: tmp_path / f"proof.{name}" for name in ("json", "html", "sarif")}
    options = [word for name, path in reports.items() for word in (f"--{name}", str(path))]
    done = verify(folder, temporary, str(folder / "train.py"), *options)
    check(done, Exit.DONE, "PASS: train.py on 2 ranks is the same training")
    assert done.stderr == ""
    assert (seen(folder), seen(elsewhere)) == before
    proof = from_json(reports["json"].read_text())
    assert {rung.status for rung in proof.rungs} == {Status.PASS}
    assert [rung.name for rung in proof.rungs[:3]] == ["one process", "distributed path", "2 processes"]
    assert "<html" in reports["html"].read_text()
    assert "sarif" in reports["sarif"].read_text()


def test_a_script_outside_of_the_folder(tmp_path: Path, temporary: Path) -> None:
    folder, other = tmp_path / "here", tmp_path / "code"
    folder.mkdir()
    (folder / "number.txt").write_text("2")
    small_training.write(other / "train.py", epochs='int(open("number.txt").read())', after='open("out.txt", "w")')
    (other / "data.txt").touch()
    before = seen(folder), seen(other)
    done = verify(folder, temporary, "../code/train.py", "--accept", "LS301", "--steps", "2")
    assert done.code in (Exit.DONE, Exit.FAILED)  # LS301: both ranks write out.txt
    assert "PASS one process" in " ".join(done.output.split())
    assert (seen(folder), seen(other)) == before


def test_a_training_that_ends_early_fails(tmp_path: Path, temporary: Path) -> None:
    """Everything that it does is right; it does half of it."""
    folder = tmp_path / "here"
    small_training.write(folder / "train.py", epochs="4 // num_ranks")
    done = verify(folder, temporary, "train.py")
    check(done, Exit.FAILED, "'mirror' is broken|step 4|another number of steps")


def test_a_gradient_that_is_no_number_fails(tmp_path: Path, temporary: Path) -> None:
    """0 / 0 on a rank without valid samples, where one process has some."""
    folder = tmp_path / "here"
    script = small_training.write(folder / "train.py")
    masked = "valid = inputs[:, :1] > 1; ((model(inputs) * valid).sum() / valid.sum()).backward()"
    script.write_text(script.read_text().replace("model(inputs).square().mean().backward()", masked))
    done = verify(folder, temporary, "train.py", "--steps", "1")
    check(done, Exit.FAILED, "'shard' is broken|nan|relative error inf")


NOT_JUDGED = [
    ("empty", "", "never calls the step of a torch optimizer"),
    ("no training", "print('hello')", "never calls the step"),
]


@pytest.mark.parametrize(("text", "must"), [row[1:] for row in NOT_JUDGED], ids=[row[0] for row in NOT_JUDGED])
def test_what_trains_nothing_is_not_judged(tmp_path: Path, temporary: Path, text: str, must: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    check(verify(folder, temporary, "train.py"), Exit.UNJUDGED, f"ABSTAIN|{must}")


ERRORS = [
    ("syntax", "x = (\n", "SyntaxError|train.py:1"),
    ("no UTF-8", b"x = '\xff'\n", "SyntaxError"),
    ("import", "import not_there_at_all\n", "ModuleNotFoundError|not_there_at_all|train.py:1"),
    ("exit code", "raise SystemExit(7)\n", "exit code 7"),
    ("a file that is not there", "open('data.csv')\n", "FileNotFoundError|data.csv"),
    ("killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "signal 9"),
    ("input", "input()\n", "EOFError"),
]


@pytest.mark.parametrize(("text", "must"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_a_script_that_does_not_run(tmp_path: Path, temporary: Path, text: str | bytes, must: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = seen(folder)
    check(verify(folder, temporary, "train.py"), Exit.FAILED, f"ERROR: train.py did not run|{must}")
    assert seen(folder) == before


@pytest.mark.alone
def test_a_take_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    lines = ["import subprocess, time", "subprocess.Popen(['sleep', '300'])", "time.sleep(300)"]
    (folder / "train.py").write_text("\n".join(lines))
    began = time.monotonic()
    done = verify(folder, temporary, "train.py", "--timeout", "1.5")
    check(done, Exit.FAILED, "ERROR|it did not end in time|--timeout")
    assert time.monotonic() - began < 20


def test_a_report_that_is_no_ordinary_file(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "real.json").touch()
    (folder / "link.json").symlink_to("real.json")
    done = verify(folder, temporary, "train.py", "--json", "link.json", "--html", "/dev/null")
    check(done, Exit.UNJUDGED)
    assert (folder / "link.json").is_symlink()
    assert from_json((folder / "real.json").read_text()).exit is Exit.UNJUDGED
    assert Path("/dev/null").is_char_device()


# ---- signals ----


def slow_command(tmp_path: Path, temporary: Path, take: str) -> Command:
    """A command in the middle of a take in which the program is slow."""
    folder = tmp_path / "here"
    slow = f"if {take!r} in os.getcwd(): open('slow', 'w').close(); time.sleep(60)"
    small_training.write(folder / "train.py", before=slow)
    command = Command(folder, "verify", "train.py", before=Before(temporary))
    command.until(lambda: _is_slow(temporary, take))
    return command


def _is_slow(temporary: Path, take: str) -> bool:
    with suppress(FileNotFoundError):  # a folder of an earlier take goes while it is looked through
        return any(temporary.glob(f"lockstep-*/*{take}/*/**/slow"))
    return False


@pytest.mark.alone
@pytest.mark.parametrize("take", ["reference", "shard"])
def test_ctrl_c_ends_the_proof(tmp_path: Path, temporary: Path, take: str) -> None:
    command = slow_command(tmp_path, temporary, take)
    os.kill(command.pid, signal.SIGINT)
    began = time.monotonic()
    check(done := command.wait(), Exit.INTERRUPTED)
    assert time.monotonic() - began < 5
    assert "ABSTAIN" not in done.output
    assert left(temporary) == []


def test_sigterm_ends_the_proof(tmp_path: Path, temporary: Path) -> None:
    command = slow_command(tmp_path, temporary, "distributed-path")
    os.kill(command.pid, signal.SIGTERM)
    check(command.wait(), Exit.FAILED, "ended by SIGTERM")
    assert left(temporary) == []


def test_after_a_sigkill_no_rank_is_left_and_the_next_proof_removes_the_folder(tmp_path: Path, temporary: Path) -> None:
    command = slow_command(tmp_path, temporary, "two-processes")
    os.kill(command.pid, signal.SIGKILL)
    assert command.wait().code == -signal.SIGKILL
    assert left(temporary)
    (tmp_path / "here" / "train.py").write_text("")
    check(verify(tmp_path / "here", temporary, "train.py"), Exit.UNJUDGED)


# ---- from Python ----


def test_the_function_gives_what_the_command_gives(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / "here"
    small_training.write(folder / "train.py", "import sys; count = int(sys.argv[1])", epochs="count")
    small_training.write(folder / "original.py", "import sys; count = len(sys.argv) - 1", epochs="count")
    written = tmp_path / "proof.json"
    options = ["--against", "original.py", "--against-args", "--a 'b c'", "--steps", "3", "--json", str(written)]
    done = verify(folder, temporary, "train.py", *options, "--", "2")
    told: list[Rung] = []
    proof = lockstep.verify(
        folder / "train.py",
        ["2"],
        against=folder / "original.py",
        against_args=["--a", "b c"],
        steps=3,
        cwd=folder,
        told=told.append,
    )
    assert proof.exit == done.code == Exit.DONE
    assert told == list(proof.rungs)
    assert essence(proof) == essence(from_json(written.read_text()))
    assert proof.program == "train.py 2"
    assert proof.reference == "original.py --a b c"


def essence(proof: Proof) -> tuple[Any, ...]:
    """All but times and rounding."""
    rungs = [(rung.name, rung.status, rung.differences, rung.findings) for rung in proof.rungs]
    return proof.program, proof.reference, proof.num_ranks, rungs, proof.accepted, proof.shares, proof.digests


@pytest.mark.parametrize(
    ("script", "changes", "match"),
    [
        ("nowhere.py", {}, "is not there"),
        ("train.py", {"against": "nowhere.py"}, "is not there"),
        ("train.py", {"args": "--epochs 2"}, "one text"),
        ("train.py", {"accept": "LS116"}, "one text"),
        ("train.py", {"accept": ["LS1"]}, "accept LS1"),
        ("train.py", {"num_ranks": 1}, "num_ranks = 1"),
        ("train.py", {"steps": 0}, "steps = 0"),
        ("train.py", {"timeout_s": 0}, "timeout_s = 0"),
        ("train.py", {"cwd": "nowhere"}, "the folder to run in"),
    ],
)
def test_the_function_raises_for_a_mistake(tmp_path: Path, script: str, changes: dict[str, Any], match: str) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(UserError, match=match):
        lockstep.verify(tmp_path / script, **changes)


def test_a_script_over_fit_is_proven_by_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "train.py").write_text("import lockstep.runtime as ls\nls.fit(None, None, None, None)\n")
    done = run(folder, "verify", "train.py")
    check(done, Exit.FAILED)
    assert "rank 0 raised UserError: the script trains by `lockstep.runtime.fit`" in " ".join(done.output.split())
    assert "Next: lockstep verify CONFIG, with the YAML file that the script loads" in done.output
