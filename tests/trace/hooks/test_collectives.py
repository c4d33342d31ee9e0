"""What is told of collectives: which, with what, among whom; and what stays of a rank that dies in one."""

import contextlib
import os
import signal
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradient
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.trace.events import Collective, End, Event, Group, Raised
from lockstep.trace.recorder import Plan
from lockstep.trace.trace import read_trace
from tests.last_to_hold import leave_before_the_model
from tests.ranks import run_ranks
from tests.trace.recording import bare, record, record_one, start


def _all_kinds() -> list[Any]:
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    got = _each_kind(dist.get_rank())  # whatever refers to the group is gone when it is destroyed
    dist.destroy_process_group()
    return got


def _each_kind(rank: int) -> list[Any]:
    one, many = torch.tensor([float(rank + 1)]), torch.full((40,), float(rank), requires_grad=True)
    dist.all_reduce(one)
    dist.all_reduce(one, op=dist.ReduceOp.MAX)
    work = dist.all_reduce(one, async_op=True)
    assert work is not None
    work.wait()
    parts = [torch.zeros(40) for _ in range(2)]
    dist.all_gather(parts, many)
    joined = torch.zeros(2)
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(joined, one)
    dist.broadcast(one, 1)
    dist.reduce(one, dst=0)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    (dist.send if rank == 0 else dist.recv)(one, 1 - rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        total = with_gradient.all_reduce(many * 2)
    total.sum().backward()
    model = DistributedDataParallel(nn.Linear(1, 1))
    model(torch.ones(1, 1)).sum().backward()
    return [one.tolist(), joined.tolist(), objects, many.grad.tolist()[:1]]


def test_every_collective_of_the_script_and_none_of_torchs_own(tmp_path: Path) -> None:
    seen = record(tmp_path, _all_kinds, num_ranks=2)
    assert [one.result for one in seen] == bare(_all_kinds, num_ranks=2)
    first, second = (one.of(Collective) for one in seen)
    assert [one.op for one in first][:-2] == [
        *["all_reduce"] * 3,
        *("all_gather", "all_gather_into_tensor", "broadcast", "reduce", "all_gather_object", "barrier", "send"),
    ]
    assert {one.op for one in first[-2:]} == {"all_reduce"}, "forward and backward of the one with a gradient"
    assert [one.op for one in second][9] == "recv"
    assert [one.number for one in first] == list(range(12)) and all(one.done for one in first)
    assert [one.reduce for one in first[:4]] == ["sum", "max", "sum", ""]
    assert [(one.given, one.got) for one in second[:3]] == [((2,), (3,)), ((3,), (3,)), ((3,), ())]
    assert (first[3].shape, first[3].grad, first[3].given) == ((40,), True, ()), "no values of more than 16"
    assert [one.src for one in first[5:7]] == [1, 0]
    assert all(one.group == 0 and one.ranks == (0, 1) and "test_collectives.py" in one.at for one in first)
    assert [one.what for one in seen[0].of(Group)] == ["init", "destroy"]
    assert all(one.time <= one.end for one in first)


def _groups() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    alone = [dist.new_group([0]), dist.new_group([1])]
    both = dist.new_group()
    for group in (alone[rank], both):
        dist.all_reduce(torch.ones(1), group=group)
    dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM, alone[rank])
    dist.destroy_process_group(both)
    for again in range(2):
        made = dist.new_group()
        dist.barrier(made)
        dist.destroy_process_group(made)
        assert again < 2
    dist.destroy_process_group()


def test_groups_have_the_same_numbers_on_all_ranks(tmp_path: Path) -> None:
    seen = record(tmp_path, _groups, num_ranks=2)
    first, second = ([(one.op, one.group, one.ranks) for one in each.of(Collective)] for each in seen)
    both = [("all_reduce", 3, (0, 1))]
    last = [("barrier", 4, (0, 1)), ("barrier", 5, (0, 1))]
    assert first == [("all_reduce", 1, (0,)), *both, ("all_reduce", 1, (0,)), *last]
    assert second == [("all_reduce", 2, (1,)), *both, ("all_reduce", 2, (1,)), *last]
    assert [one.group for one in seen[1].of(Group) if one.what == "new"] == [2, 3, 4, 5]


def _errors() -> list[str]:
    met = []

    def attempt(action: Any) -> None:
        try:
            action()
        except Exception as error:
            met.append(f"{type(error).__name__}: {error}")

    attempt(dist.barrier)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    attempt(lambda: dist.all_reduce("no tensor"))
    attempt(lambda: dist.broadcast(torch.ones(1), 5))
    attempt(lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX))
    dist.destroy_process_group()
    return met


def test_a_collective_that_fails_is_told_and_fails_as_it_would(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _errors)
    assert [seen.result] == bare(_errors) and len(seen.result) == 4
    assert [one.error for one in seen.of(Raised)] == [text[:2000] for text in seen.result]
    assert [(one.op, one.done) for one in seen.of(Collective)] == [
        ("barrier", False),
        ("all_reduce", False),
        ("broadcast", False),
        ("all_reduce", False),
    ]


def _strange() -> list[Any]:
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    got = []
    for tensor in (
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor(3),
        torch.zeros(0),
        torch.tensor([True]),
        torch.ones(2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
    ):
        dist.all_reduce(tensor)
        got.append(str(tensor.to_dense()))
    dist.destroy_process_group()
    return got


def test_tensors_of_all_kinds(tmp_path: Path) -> None:
    seen = record_one(tmp_path, _strange)
    assert [seen.result] == bare(_strange)
    told = seen.of(Collective)
    assert [one.dtype for one in told] == ["bfloat16", "int64", "float32", "bool", "complex64", "float32"]
    assert [one.given for one in told] == [(1, 1), (3,), (), (1,), (), ()]


def _dies(folder: str) -> None:
    """Rank 1 is killed before its second collective, in which rank 0 waits for it."""
    start(Plan(Path(folder)))
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    dist.all_reduce(torch.ones(1))
    for number in range(600):  # words that nobody has flushed
        torch.manual_seed(number)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(2))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_is_killed_leaves_all_up_to_its_last_collective(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="SIGKILL"):
        run_ranks(_dies, 2, str(tmp_path))
    waiting, dead = (rank.events for rank in read_trace(tmp_path).ranks)
    assert [_word(event) for event in waiting if isinstance(event, Collective | Raised | End)] == [
        ("all_reduce", (1,), True),
        ("all_reduce", (2,), False),
        "collective",
    ]
    assert [_word(event) for event in dead if isinstance(event, Collective | Raised | End)] == [
        ("all_reduce", (1,), True)
    ]


def _word(event: Event) -> Any:
    return (event.op, event.shape, event.done) if isinstance(event, Collective) else getattr(event, "through", event)


def test_a_group_is_not_freed_by_the_model_that_outlives_it(tmp_path: Path) -> None:
    assert record_one(tmp_path, leave_before_the_model).result > 0
