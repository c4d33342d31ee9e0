"""What became of a run after a fault, from takes made by hand. Real ones: tests/proof/test_fault.py."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.core.outcome import Exit
from lockstep.launch.verdict import RankEnd, Verdict
from lockstep.proof.aftermath import Aftermath, aftermath
from lockstep.proof.sandbox import inside
from lockstep.proof.strike import Strike
from lockstep.proof.takes import Take, workspace_of
from lockstep.trace.events import Collective, Event, File, Forward, Raised
from tests.proof.by_hand import HERE, Made, take

RAISE, KILL = Strike("raise", 1, 1), Strike("kill", 1, 1)
ERROR = Raised(through="backward", error="OutOfMemoryError: out of memory", step=1, at=f"{HERE}:50")


def struck(folder: Path, *more: Event, code: int | None = 1, text: str = "", cut: str = "", **fields: Any) -> Take:
    """Rank 1 met with a fault after a step, and then `more` was seen of it."""
    made = take(folder / "trace", [Made()], [Made()], how="raised")
    ranks = (made.trace.ranks[0], replace(made.trace.ranks[1], events=(*made.trace.ranks[1].events[:-1], *more)))
    (folder / "fault.json").write_text(json.dumps({"rank": 1, "step": 1, "time": time.time(), "at": f"{HERE}:50"}))
    ends = RankEnd(0, 1), RankEnd(1, code)
    outcome = replace(made.outcome, verdict=Verdict(text, Exit.FAILED), ends=ends, cut=cut)
    return replace(made, trace=replace(made.trace, ranks=ranks), outcome=outcome, over=time.time() + 0.25, **fields)


def calm(folder: Path, *files: File, **fields: Any) -> Take:
    return take(folder / "trace", [Made(more=files)], [Made()], **fields)


def judged(folder: Path, strike: Strike, made: Take, launched: int = 2) -> Aftermath:
    return aftermath(made, strike, calm(folder / "calm"), launched)


def test_no_fault_no_judgement(tmp_path: Path) -> None:
    made = struck(tmp_path)
    (tmp_path / "fault.json").unlink()
    assert judged(tmp_path, RAISE, made) == Aftermath(None)


def test_a_clean_end_has_its_seconds(tmp_path: Path) -> None:
    found = judged(tmp_path, RAISE, struck(tmp_path, ERROR, text="Rank 1 failed first: out of memory"))
    assert found.findings == () and not found.together
    assert 0.2 < found.seconds < 5


def test_a_collective_after_the_error(tmp_path: Path) -> None:
    call = Collective(number=0, op="barrier", done=False, at=f"{HERE}:70")
    for cut, words in (("fault", "it waited there"), ("", "with NCCL it waits")):
        (one,) = judged(tmp_path / cut / "j", RAISE, struck(tmp_path / f"a{cut}", ERROR, call, cut=cut)).findings
        assert (one.code, str(one.place)) == ("LS416", f"{HERE}:70")
        assert "called barrier" in one.seen and words in one.seen
    before = struck(tmp_path / "b", call, ERROR)
    assert judged(tmp_path / "k", RAISE, before).findings == ()
    joined = struck(tmp_path / "c", ERROR, replace(call, done=True))
    assert judged(tmp_path / "m", RAISE, joined).findings == ()


def test_the_stack_tells_where_it_waits(tmp_path: Path) -> None:
    made = struck(tmp_path, ERROR, cut="fault")
    here = workspace_of(made)
    (tmp_path / "stack.txt").write_text(
        "Timeout (0:00:03)!\nThread 0x01 (most recent call first):\n"
        '  File "/x/torch/distributed/distributed_c10d.py", line 5 in barrier\n'
        f'  File "{here}/home/me/train.py", line 80 in close\n'
        '  File "/x/lockstep/proof/strike.py", line 9 in script_as_python\n'
    )
    (one,) = judged(tmp_path, RAISE, made).findings
    assert str(one.place) == f"{HERE}:80"
    assert "5 s after rank 1 had failed" in one.seen and ", in barrier: an exit handler" in one.seen


@pytest.mark.parametrize(("code", "seen"), [(0, "ended with exit code 0"), (1, "")])
def test_code_0_after_an_error(code: int, seen: str, tmp_path: Path) -> None:
    found = judged(tmp_path, RAISE, struck(tmp_path, ERROR, code=code)).findings
    assert [one.code for one in found] == (["LS416"] if seen else [])
    assert all(seen in one.seen and "lost connection" in one.seen for one in found)


def test_another_rank_is_named(tmp_path: Path) -> None:
    (one,) = judged(tmp_path, KILL, struck(tmp_path, code=-9, text="Rank 0 called sys.exit(3)")).findings
    assert "rank 1 failed, and rank 0 is named" in one.seen
    both = struck(tmp_path / "b", code=-9, text="Ranks 0, 1 failed")
    assert judged(tmp_path / "c", KILL, both).findings == ()


def test_a_program_that_starts_its_ranks_and_ends_with_code_0(tmp_path: Path) -> None:
    made = struck(tmp_path, ERROR)
    made = replace(made, outcome=replace(made.outcome, ends=(RankEnd(0, 0),)))
    (one,) = judged(tmp_path, RAISE, made, launched=1).findings
    assert "the program that had started it ended with exit code 0" in one.seen


def test_processes_that_are_left_only_after_a_fault(tmp_path: Path) -> None:
    made = struck(tmp_path, code=-9, left=("server --port 1", "helper"))
    found = aftermath(made, KILL, calm(tmp_path / "calm", left=("server --port 1",)), 2).findings
    assert [one.code for one in found] == ["LS418"]
    assert "outlived it: helper" in found[0].seen


def saved(home: Take, path: str, half: bool) -> None:
    file = inside(workspace_of(home), Path(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"a": torch.ones(300)}, file)
    if half:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])


def test_files_that_were_whole_without_the_fault(tmp_path: Path) -> None:
    paths = "/home/me/a.pt", "/home/me/b.pt", "/home/me/c.pt"
    files = tuple(File(op="save", path=path, end=1.0, at=f"{HERE}:9") for path in paths)
    ordinary, made = calm(tmp_path / "calm", *files), struck(tmp_path, code=-9)
    for path, both in zip(paths, ((False, False), (False, True), (True, True)), strict=True):
        for one, half in zip((ordinary, made), both, strict=True):
            saved(one, path, half)
    found = aftermath(made, KILL, ordinary, 2)
    assert found.whole == ("a.pt",)
    (one,) = found.findings  # the third is never whole: it is none that can be read
    assert (one.code, str(one.place)) == ("LS417", f"{HERE}:9")
    assert "b.pt is left damaged (its archive ends too early), whole ones beside it: a.pt" in one.seen


@pytest.mark.parametrize("together", [True, False])
def test_all_ranks_went_on(together: bool, tmp_path: Path) -> None:
    read = Forward(model=0, via="wrapper", step=1)
    ranks = [[Made(), Made(more=(read,) * (2 if together or rank else 1))] for rank in range(2)]
    made = take(tmp_path / "trace", *ranks, how="raised")
    (tmp_path / "fault.json").write_text(json.dumps({"rank": 1, "step": 1, "time": time.time()}))
    for rank in range(2):
        (tmp_path / f"went-on-{rank}").touch()
    found = aftermath(made, RAISE, calm(tmp_path / "calm"), 2)
    assert found.together
    assert [one.code for one in found.findings] == ([] if together else ["LS416"])
