"""A script as a launched rank: what it finds, and that its end ends the rank."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.launch.record import FAILURES_ENV
from lockstep.launch.script import Manner, script_rank
from lockstep.trace.events import Start, Step
from lockstep.trace.feed import FeedPlan
from lockstep.trace.recorder import Plan
from lockstep.trace.script import Program
from lockstep.trace.trace import read_trace
from tests.commands import lockstep
from tests.ranks import run_ranks

FINDS = """
import json, os, pathlib, torch
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT",
         "OMP_NUM_THREADS")
found = {name: os.environ.get(name) for name in names} | {"threads": torch.get_num_threads()}
pathlib.Path("found-" + os.environ.get("RANK", "alone")).write_text(json.dumps(found))
"""
STEPS = """
import torch
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(10):
    weight.grad = torch.ones(1)
    optimizer.step()
print("never reached")
"""


def _as_rank(folder: str, manner: dict[str, Any], feed: FeedPlan | None) -> list[Any]:
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ[FAILURES_ENV] = folder
    fed: list[Any] = []

    def prepare(recorder: Any, source: Any) -> None:
        assert "train.py" in recorder.start.script, "told before"
        fed.extend([source.plan.rank, source.plan.num_ranks] if source else [])

    program = Program(Path(folder, "train.py"), (), Path(folder))
    script_rank(program, Plan(Path(folder, "trace")), feed, Manner(prepare=prepare, **manner))
    return fed


def _found(
    folder: Path, num_ranks: int, feed: FeedPlan | None = None, **manner: Any
) -> tuple[list[Any], list[dict[str, Any]], list[Start]]:
    (folder / "trace").mkdir()
    (folder / "train.py").write_text(FINDS)
    fed = run_ranks(_as_rank, num_ranks, str(folder), manner, feed)
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("found-*"))]
    return fed, found, [rank.start for rank in read_trace(folder / "trace").ranks]


def test_as_under_torchrun(tmp_path: Path) -> None:
    _, found, starts = _found(tmp_path, 2)
    for rank, (one, start) in enumerate(zip(found, starts, strict=True)):
        assert (one["RANK"], one["WORLD_SIZE"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) == (
            str(rank),
            "2",
            str(rank),
            "2",
        )
        assert (one["threads"], one["OMP_NUM_THREADS"]) == (1, "1"), "as torchrun has it"
        assert (start.launch, start.rank, start.num_ranks, start.ranks_per_node) == ("torchrun", rank, 2, 2)


def test_as_one_process(tmp_path: Path) -> None:
    _, (found,), (start,) = _found(tmp_path, 1, single=True, threads=2)
    assert found.pop("threads") == 2 and found.pop("OMP_NUM_THREADS") == "2"
    assert set(found.values()) == {None}, "no variable of torchrun's is left"
    assert (start.launch, start.rank, start.num_ranks, start.threads) == ("single", 0, 1, 2)


def test_each_rank_on_a_node_of_its_own(tmp_path: Path) -> None:
    _, found, starts = _found(tmp_path, 2, nodes=True)
    assert [(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"], one["GROUP_RANK"]) for one in found] == [
        ("0", "1", "0"),
        ("0", "1", "1"),
    ]
    assert {one["GROUP_WORLD_SIZE"] for one in found} == {"2"}
    assert [(start.rank, start.rank_of_node, start.ranks_per_node) for start in starts] == [(0, 0, 1), (1, 0, 1)]


@pytest.mark.parametrize(
    ("role", "fed", "wanted"),
    [("shard", True, [[0, 2], [1, 2]]), ("shard", False, [[5, 7], [5, 7]]), ("mirror", True, [[5, 7], [5, 7]])],
)
def test_whose_rows_a_rank_is_fed(tmp_path: Path, role: Any, fed: bool, wanted: list[list[int]]) -> None:
    plan = FeedPlan(role, tmp_path, rank=5, num_ranks=7)
    assert _found(tmp_path, 2, plan, fed=fed)[0] == wanted


def test_a_run_that_is_stopped_after_some_steps_is_a_success(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    options = ["--record", str(tmp_path / "t"), "--nproc", "2", "--steps", "3"]
    done = lockstep(tmp_path / "cwd", "run", *options, str(tmp_path / "train.py"))
    assert done.code == 0 and "never reached" not in done.output
    trace = read_trace(tmp_path / "t")
    assert [len(steps) for steps in trace.each(Step)] == [3, 3]
    assert [rank.end.how for rank in trace.ranks if rank.end is not None] == ["enough", "enough"]


def test_a_script_that_fails_fails_the_run_with_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nif os.environ['RANK'] == '1':\n    raise LookupError('no such data')\n"
    )
    done = lockstep(
        tmp_path / "cwd", "run", "--record", str(tmp_path / "t"), "--nproc", "2", str(tmp_path / "train.py")
    )
    assert done.code == 1 and "LookupError: no such data" in done.stderr and "train.py" in done.stderr
    end = read_trace(tmp_path / "t").ranks[1].end
    assert end is not None and (end.how, end.at) == ("raised", f"{tmp_path}/train.py:3")
    assert torch.__version__ == read_trace(tmp_path / "t").ranks[0].start.versions["torch"]
