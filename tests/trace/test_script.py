"""A user's script under the recorder: as it would run alone, and how its end is told."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.trace.events import End, Seed, Start, Step
from lockstep.trace.recorder import Plan
from lockstep.trace.script import Program, run_script
from lockstep.trace.trace import RankTrace, read_trace
from lockstep.trace.whoami import Whoami
from tests.ranks import run_ranks


def _run(folder: str, name: str, argv: tuple[str, ...], steps: int | None) -> str:
    """What came out of the script: the error that it left with, or ""."""
    program = Program(Path(folder, "code", name), argv, Path(folder, "work"))

    def enough() -> None:
        raise KeyboardInterrupt("enough")

    who = Whoami(rank=3, num_ranks=8, rank_of_node=1, ranks_per_node=2, launch="torchrun")
    try:
        run_script(program, Plan(Path(folder, "trace"), steps=steps), who, None, enough)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _recorded(
    folder: Path, source: str, *argv: str, steps: int | None = None, name: str = "train.py"
) -> tuple[str, RankTrace]:
    for one in ("code", "work", "trace"):
        (folder / one).mkdir()
    (folder / "code" / name).write_text(source)
    (folder / "code" / "beside.py").write_text("VALUE = 5\n")
    (out,) = run_ranks(_run, 1, str(folder), name, argv, steps)
    (rank,) = read_trace(folder / "trace").ranks
    return out, rank


WORLD = """
import os, sys, pathlib, beside
found = [__name__, sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(sys.path[0]), beside.VALUE,
         os.path.basename(os.getcwd()), os.path.basename(__file__), sys.modules["__main__"].__name__]
assert main.__module__ == "__main__" if (main := type("main", (), {})) else True
pathlib.Path("found").write_text(repr(found))
"""


def test_the_script_finds_the_world_as_python_gives_it(tmp_path: Path) -> None:
    out, rank = _recorded(tmp_path, WORLD, "--lr", "0.1 x", name="my train.py")
    assert out == ""
    found: Any = eval((tmp_path / "work" / "found").read_text())
    assert found == ["__main__", ["--lr", "0.1 x"], "my train.py", "code", 5, "work", "my train.py", "__main__"]
    start = rank.start
    assert rank.events[0] is start and rank.rank == 3
    assert (start.rank, start.num_ranks, start.rank_of_node, start.ranks_per_node) == (3, 8, 1, 2)
    assert (start.launch, start.argv, start.detail) == ("torchrun", ("--lr", "0.1 x"), "default")
    assert start.versions["python"] == sys.version.split()[0] and start.threads == 1
    assert rank.end == rank.events[-1] and rank.end.how == "returned"


@pytest.mark.parametrize(
    ("last", "out", "how", "code", "error"),
    [
        ("sys.exit(3)", "SystemExit: 3", "exited", 3, "3"),
        ("sys.exit()", "", "exited", 0, ""),
        ("sys.exit('no data')", "SystemExit: no data", "exited", 1, "no data"),
        ("raise ValueError('bad lr')", "ValueError: bad lr", "raised", 1, "ValueError: bad lr"),
        ("json.loads('{')", None, "raised", 1, None),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: ", "raised", 1, "KeyboardInterrupt: "),
    ],
)
def test_how_a_script_ends(tmp_path: Path, last: str, out: str | None, how: str, code: int, error: str | None) -> None:
    source = f"import json, sys, torch\ndef main():\n    torch.manual_seed(5)\n    {last}\nmain()\n"
    seen, rank = _recorded(tmp_path, source)
    end = rank.end
    assert end is not None and (end.how, end.code) == (how, code)
    assert end.at == f"{tmp_path}/code/train.py:4", "the user's own line, not json's"
    if out is not None:
        assert seen == out and end.error == error
    assert [one.value for one in rank.of(Seed)] == [5] and rank.start.script.endswith("train.py")


def test_a_script_that_is_no_python(tmp_path: Path) -> None:
    out, rank = _recorded(tmp_path, "x = 1\ny = = 2\n")
    assert out.startswith("SyntaxError")
    assert rank.end is not None and rank.end.at == f"{tmp_path}/code/train.py:2" and rank.end.how == "raised"
    assert isinstance(rank.events[0], Start) and isinstance(rank.events[-1], End)


STEPS = """
import torch
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(10):
    weight.grad = torch.ones(1)
    optimizer.step()
"""


def test_a_script_is_stopped_after_so_many_steps(tmp_path: Path) -> None:
    out, rank = _recorded(tmp_path, STEPS, steps=3)
    assert out == "KeyboardInterrupt: enough", "the launched rank leaves its process here"
    assert len(list(rank.of(Step))) == 3
    assert rank.end is not None and rank.end.how == "enough"


def test_a_program_is_shown_as_it_is_typed() -> None:
    assert str(Program(Path("/a/b/train.py"), ("--lr", "0.1"))) == "train.py --lr 0.1"
