"""Marks from torch's own calls, in real ranks."""

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from lockstep.trace.progress import Board, Phase, Reading, hooks
from lockstep.trace.progress.hooks import Turns
from tests.last_to_hold import leave_before_the_model
from tests.ranks import run_ranks


def marked(folder: str, num_ranks: int) -> tuple[Board, int]:
    """In a rank: hooks in place, the group joined."""
    import os

    rank = int(os.environ["RANK"])
    board = Board(Path(folder), num_ranks)
    hooks.install(board.marks(rank))
    dist.init_process_group("gloo")
    return board, rank


def look(folder: Path, fn: Any, num_ranks: int = 2) -> list[Reading]:
    board = Board(folder, num_ranks, make=True)
    run_ranks(fn, num_ranks, str(folder))
    return [board.read(rank) for rank in range(num_ranks)]


def train_a_little(folder: str) -> None:
    _, rank = marked(folder, 2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(12, 2)), 4):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    model.eval()
    dist.all_reduce(torch.zeros(3))
    dist.all_gather_object([None, None], "x" * rank)
    dist.destroy_process_group()


def test_steps_batches_and_collectives(tmp_path: Path) -> None:
    found = look(tmp_path, train_a_little)
    assert found[0].digests == found[1].digests
    for seen in found:
        assert (seen.step, seen.batches, seen.inside) == (3, 3, 0)
        ops = [(entry.op, entry.about, entry.step) for entry in seen.entries if entry.op != "buffers"]
        assert ops == [
            ("gradients", "", 0),
            ("gradients", "", 1),
            ("gradients", "", 2),
            ("all_reduce", "float32[3]", 3),
            ("all_gather_object", "", 3),
        ]
        assert all(Path(entry.place.rpartition(":")[0]).name == "test_hooks.py" for entry in seen.entries)
        assert seen.phase == Phase.END and not seen.evaluating
        assert seen.comparable
        assert [step for step, _ in seen.digests] == [1]


def accumulate(folder: str) -> None:
    marked(folder, 2)
    model = DistributedDataParallel(nn.Linear(2, 1))
    with model.no_sync():
        model(torch.zeros(1, 2)).sum().backward()
    model(torch.zeros(1, 2)).sum().backward()
    nn.Linear(2, 1)(torch.zeros(1, 2)).sum().backward()
    dist.destroy_process_group()


def test_only_a_backward_that_reduces_is_a_collective(tmp_path: Path) -> None:
    for seen in look(tmp_path, accumulate):
        assert [entry.op for entry in seen.entries] == ["gradients"]


def other_groups(folder: str) -> None:
    board, rank = marked(folder, 2)
    alone = [dist.new_group([one]) for one in range(2)]
    dist.all_reduce(torch.zeros(1 + rank), group=alone[rank])
    if rank == 0:
        dist.send(torch.zeros(1), 1)
    else:
        dist.recv(torch.zeros(1), 0)
    assert board.read(rank).count == 0
    dist.destroy_process_group()


def test_what_not_all_call_is_not_counted(tmp_path: Path) -> None:
    for seen in look(tmp_path, other_groups):
        assert seen.count == 0 and seen.now == ""


def uneven(folder: str) -> None:
    _, rank = marked(folder, 2)
    model = DistributedDataParallel(nn.Linear(2, 1))
    with model.join():
        for _ in range(2 + rank):
            model(torch.zeros(1, 2)).sum().backward()
    dist.destroy_process_group()


def test_under_join_nothing_is_compared(tmp_path: Path) -> None:
    assert [seen.comparable for seen in look(tmp_path, uneven)] == [False, False]


def wait_for_the_other(folder: str) -> None:
    board, rank = marked(folder, 2)
    model = DistributedDataParallel(nn.Linear(2, 1))
    dist.barrier()
    if rank == 0:
        deadline = time.monotonic() + 20
        while board.read(1).inside != 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = board.read(1)
        assert (seen.inside, seen.phase) == (2, Phase.BACKWARD)
        assert seen.entries[-1].op == "gradients" and seen.entries[-1].place.rpartition(":")[0].endswith(
            "test_hooks.py"
        )
    model(torch.zeros(1, 2)).sum().backward()
    dist.destroy_process_group()


def test_who_waits_inside_a_collective_is_seen_there(tmp_path: Path) -> None:
    look(tmp_path, wait_for_the_other)


def save(folder: str) -> None:
    board, rank = marked(folder, 2)
    seen: list[Phase] = []

    class File:
        def write(self, data: bytes) -> int:
            seen.append(board.read(rank).phase)
            return len(data)

        def flush(self) -> None:
            pass

    torch.save({"a": torch.zeros(2)}, File())  # type: ignore[arg-type]
    assert set(seen) == {Phase.SAVE}
    nn.Linear(1, 1).eval()
    assert board.read(rank).evaluating
    nn.Linear(1, 1).train()
    assert not board.read(rank).evaluating
    dist.destroy_process_group()


def test_saving_and_evaluation_are_known(tmp_path: Path) -> None:
    look(tmp_path, save)


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def test_steps_of_several_optimizers_are_counted_once() -> None:
    turns, first, second = Turns(), optimizer(), optimizer()
    assert [turns.counts(one) for one in (first, second, first, second, first)] == [True, False, True, False, True]


def test_a_new_optimizer_takes_the_place_of_the_first_whether_that_is_still_there_or_not() -> None:
    for kept in (True, False):
        turns, first = Turns(), optimizer()
        assert turns.counts(first)
        if not kept:
            del first
        later = optimizer()
        assert [turns.counts(later) for _ in range(3)] == [False, True, True]


def end_before_the_model(folder: str) -> int:
    hooks.install(Board(Path(folder), 1).marks(0))
    return leave_before_the_model()


def test_a_group_is_not_freed_by_the_model_that_outlives_it(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, make=True)
    assert run_ranks(end_before_the_model, 1, str(tmp_path))[0] > 0
    assert board.read(0).phase == Phase.END
