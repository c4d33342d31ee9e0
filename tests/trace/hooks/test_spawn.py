"""Scripts that start their ranks themselves."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

from lockstep.trace.events import Batch, Collective, End, Seed, Step
from lockstep.trace.recorder import Plan
from lockstep.trace.trace import Trace, read_trace
from tests.commands import lockstep
from tests.ranks import run_ranks
from tests.trace.recording import start

PROGRAM = Path(__file__).resolve().parents[2] / "programs" / "right" / "mp_spawn.py"
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_each_spawned_process_is_a_rank(tmp_path: Path) -> None:
    done = lockstep(
        tmp_path / "work", "run", "--record", str(tmp_path / "t"), "--nproc", "1", str(PROGRAM), "--spawn", "2"
    )
    assert done.code == 0, done.output
    trace = read_trace(tmp_path / "t")
    assert [rank.rank for rank in trace.ranks] == [0, 1]
    for rank in trace.ranks:
        begun = rank.start
        assert (begun.launch, begun.rank, begun.num_ranks, begun.ranks_per_node) == ("spawn", rank.rank, 2, 2)
        assert rank.end is not None and rank.end.how == "returned"
        assert begun.pid != trace.ranks[0].start.pid or rank.rank == 0
    first, second = trace.each(Step)
    assert len(first) == len(second) == 12 and first[-1].after == second[-1].after
    assert all(str(PROGRAM) in step.at for step in first)
    assert not (set(trace.each(Batch)[0][0].ids or ()) & set(trace.each(Batch)[1][0].ids or ()))
    assert (tmp_path / "t" / "launcher.jsonl").read_text().count("\n") >= 2
    assert "last loss of rank 0" in done.stdout


def _start(folder: str, function: Callable[..., None]) -> str:
    recorder = start(Plan(Path(folder)))
    try:
        mp.start_processes(function, (4,), 2, start_method="fork")  # type: ignore[attr-defined]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[-1]}"
    finally:
        recorder.end(End(how="returned"))
    return ""


def _forked(folder: Path, function: Callable[..., None]) -> tuple[str, Trace]:
    (out,) = run_ranks(_start, 1, str(folder), function)
    return out, read_trace(folder)


def _reads(rank: int, base: int) -> None:
    torch.manual_seed(base + rank)
    list(DataLoader(range(base), 1))  # type: ignore[arg-type, var-annotated]


def test_a_forked_rank_has_hooks_of_its_own_only(tmp_path: Path) -> None:
    out, trace = _forked(tmp_path, _reads)
    assert out == ""
    for rank in trace.ranks:
        assert [batch.ids for batch in rank.of(Batch)] == [(0,), (1,), (2,), (3,)], "each once"
        assert [seed.value for seed in rank.of(Seed)][:1] == [4 + rank.rank]
        assert rank.end is not None and rank.end.how == "returned"


def _fails(rank: int, base: int) -> Any:
    if rank == 1:
        raise ValueError("only here")
    sys.exit(0)


def test_how_a_spawned_rank_ends(tmp_path: Path) -> None:
    out, trace = _forked(tmp_path, _fails)
    assert out == "ProcessRaisedException: ValueError: only here"
    ends = [rank.end for rank in trace.ranks]
    assert ends[1] is not None and (ends[1].how, ends[1].error) == ("raised", "ValueError: only here")
    if ends[0] is not None:  # torch may end it before
        assert (ends[0].how, ends[0].code) == ("exited", 0)
    assert not list(trace.ranks[1].of(Collective))
