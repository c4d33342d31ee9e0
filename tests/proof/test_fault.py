"""The fault rung on real programs: ranks are killed, ranks fail, and what the program makes of it is found."""

import re
import shutil
from pathlib import Path

import psutil
import pytest

from lockstep.core.finding import Severity
from lockstep.core.proof import Rung, Status
from lockstep.proof.fault import fault
from lockstep.proof.question import Question, Stage
from lockstep.proof.takes import Settings, open_studio
from lockstep.trace.script import Program
from tests.programs.catalog import ROOT
from tests.proof.apart import apart

WORDS = ("--resume", "checkpoint.pt")
GONE = re.compile(r"all (\d) processes gone in (\d+\.\d\d) s.*: in (\d+\.\d\d) s")


def climb(script: Path, words: tuple[str, ...] | None, accept: tuple[str, ...], num_ranks: int) -> Rung | None:
    question = Question(Program(script, (), script.parent), None, Settings(num_ranks), accept, resume=words)
    with open_studio(question.settings) as studio:
        rung = fault(Stage(question, studio))
        others = [one.cmdline() for one in psutil.Process().children() if "resource_tracker" not in str(one.cmdline())]
        assert others == [], "processes are left"
    return rung


def judge(
    folder: Path,
    name: str,
    *changes: tuple[str, str],
    words: tuple[str, ...] | None = None,
    accept: tuple[str, ...] = (),
    num_ranks: int = 2,
) -> Rung:
    """The rung for a program of the catalog with some of its lines changed."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = folder / "home" / Path(name).name
    shutil.rmtree(script.parent, ignore_errors=True)
    script.parent.mkdir()
    script.write_text(text, encoding="utf-8")
    rung = apart(climb, script, words, accept, num_ranks, folder=folder)
    assert isinstance(rung, Rung)
    return rung


def line_of(name: str, code: str) -> int:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if code in line)


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_program_that_fails_cleanly_passes_with_numbers(num_ranks: int, tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/fails_cleanly.py", num_ranks=num_ranks)
    assert (rung.status, rung.findings) == (Status.PASS, ()), rung
    assert f"an error on rank {num_ranks - 1} in step 2" in rung.said
    assert f"rank {num_ranks - 1} killed at step 2" in rung.said
    found = GONE.search(rung.said)
    assert found is not None, rung.said
    assert found[1] == str(num_ranks)
    assert float(found[2]) < 5 and float(found[3]) < 5


WRONG = {
    # program: (code, words of what was seen, the line that it names)
    "swallows_an_error": ("LS121", "rank 1 caught an error of its backward and went on training", "loss.backward()"),
    "exits_with_zero": ("LS416", "rank 1 ended with exit code 0 after its error", "sys.exit(0)"),
    "waits_in_finally": ("LS416", "rank 1 called barrier, which the other ranks do not join", "dist.barrier()"),
    "waits_at_exit": ("LS416", "still there, in barrier: an exit handler", "loss.backward()"),
    "saves_in_place": ("LS417", "checkpoint.pt is left damaged (its archive ends too early), no whole", "path.open("),
    "leaves_a_child": ("LS418", "1 process that a rank had started outlived it", ""),
}
SLOW = [
    pytest.param(name, marks=[] if name in ("swallows_an_error", "waits_in_finally") else pytest.mark.slow)
    for name in WRONG
]


@pytest.mark.parametrize("name", SLOW)
def test_what_keeps_a_failure_from_being_seen_is_named(name: str, tmp_path: Path) -> None:
    rung = judge(tmp_path, f"wrong/{name}.py")
    code, words, line = WRONG[name]
    assert rung.status is Status.FAIL, rung
    found = next(one for one in rung.findings if one.code == code)
    assert words in found.seen
    assert f": {code}, " in rung.said and words in rung.said
    assert found.severity is (Severity.DEVIATION if code in ("LS417", "LS418") else Severity.ERROR)
    if line:
        assert found.place is not None
        assert found.place.line == line_of(f"wrong/{name}.py", line)
        assert found.place.path.endswith(f"home/{name}.py") and "work" not in Path(found.place.path).parts


@pytest.mark.slow
def test_what_all_ranks_leave_out_together_is_no_fault(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/skips_together.py")
    assert (rung.status, rung.findings) == (Status.PASS, ()), rung
    assert "all ranks left the step out together" in rung.said


@pytest.mark.slow
def test_a_rank_that_leaves_without_a_word_is_seen(tmp_path: Path) -> None:
    rung = judge(tmp_path, "wrong/exits_with_zero.py", ("sys.exit(0)", "sys.stdout.flush()\n        os._exit(0)"))
    assert rung.status is Status.FAIL
    assert "LS416, rank 1 ended with exit code 0 after its error" in rung.said


@pytest.mark.slow
def test_a_thread_that_python_waits_for_is_seen(tmp_path: Path) -> None:
    change = ("    main()\n", "    threading.Thread(target=time.sleep, args=(100,)).start()\n    main()\n")
    names = ("import os\n", "import os\nimport threading\nimport time\n")
    change = (f'if __name__ == "__main__":\n{change[0]}', f'if __name__ == "__main__":\n{change[1]}')
    rung = judge(tmp_path, "right/plain.py", names, change)
    assert rung.status is Status.FAIL
    assert "a thread that Python waits for at its exit" in rung.said


@pytest.mark.slow
def test_the_rank_that_failed_is_the_one_that_is_named(tmp_path: Path) -> None:
    """The others hide that they have waited in vain, and are ended before the rank that failed."""
    changes = (
        ("sys.exit(0)", 'sys.exit("failed")'),
        ("import sys\n", "import sys\nimport time\nfrom datetime import timedelta\n"),
    )
    assert judge(tmp_path, "wrong/exits_with_zero.py", *changes).status is Status.PASS
    short = ('init_process_group("gloo")', 'init_process_group("gloo", timeout=timedelta(seconds=2))')
    slow = ('        print(f"stop', '        time.sleep(4 * (os.environ.get("RANK") == "1"))\n        print(f"stop')
    rung = judge(tmp_path, "wrong/exits_with_zero.py", *changes, short, slow)
    assert rung.status is Status.FAIL, rung
    assert "rank 1 failed, and rank 0 is named" in rung.said


@pytest.mark.slow
def test_a_run_killed_in_its_save_goes_on_from_the_one_before(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/resumable.py", words=WORDS)
    assert rung.status is Status.PASS, rung
    assert "rank 0 killed in its save (step 12): in " in rung.said
    assert rung.said.endswith("resumed, it equals the unbroken run bit for bit")


IN_PLACE = ("    beside.replace(path)\n", ""), ('path.with_suffix(".new")', "path")


@pytest.mark.slow
def test_a_checkpoint_that_is_written_over_in_place(tmp_path: Path) -> None:
    rung = judge(tmp_path, "right/resumable.py", *IN_PLACE, words=WORDS)
    assert rung.status is Status.FAIL
    assert "rank 0 was killed while it saved in step 12: LS417, after a kill checkpoint.pt is left" in rung.said
    declared = judge(tmp_path, "right/resumable.py", *IN_PLACE, words=WORDS, accept=("LS417",))
    assert declared.status is Status.PASS, declared
    assert "rank 1 killed at step 7" in declared.said and "bit for bit" in declared.said


@pytest.mark.slow
def test_a_resume_that_reads_what_a_killed_save_has_left(tmp_path: Path) -> None:
    """The newest file by name is the half one, under its temporary name."""
    changes = (
        ('path.with_suffix(".new")', "path.with_name(f\"checkpoint-{state['epoch']}.pt.new\")"),
        ("    beside.replace(path)\n", '    beside.replace(beside.with_suffix(""))\n'),
        ("torch.load(args.resume, ", 'torch.load(max(Path().glob("checkpoint-*")), '),
    )
    rung = judge(tmp_path, "right/resumable.py", *changes, words=WORDS)
    assert rung.status is Status.FAIL, rung
    assert (
        "rank 0 was killed while it saved: started again with `--resume checkpoint.pt` it does not go on" in rung.said
    )
