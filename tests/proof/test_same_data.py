"""Other training data than the original's, which no fed take shows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep.proof.same_data import other_data
from lockstep.trace.events import Batch, Event, Loader, PassEnd, Start
from lockstep.trace.trace import RankTrace, Trace
from tests.proof.proving import prove


def run(ranks: Sequence[Sequence[int]], length: int, split: str = "", sampler: str = "RandomSampler") -> Trace:
    stream = f"Data/100/{length}#0"
    traces = []
    for rank, ids in enumerate(ranks):
        events: list[Event] = [
            Start(script="x.py"),
            Loader(
                loader=0, stream=stream, dataset="Data", root="Data", root_length=100, length=length, sampler=sampler,
                split=split, at="x.py:3",
            ),
            Batch(loader=0, stream=stream, number=0, batch=0, ids=tuple(ids)),
            PassEnd(loader=0, stream=stream, number=0, batches=1),
        ]  # fmt: skip
        traces.append(RankTrace(rank, tuple(events)))
    return Trace(tuple(traces))


def seen(reference: Trace, program: Trace) -> list[str]:
    return [finding.seen for finding in other_data(reference, program, 8)]


def test_the_same_samples_are_no_finding() -> None:
    one = run([range(80)], 80, "a")
    assert not seen(one, run([range(0, 80, 2), range(1, 80, 2)], 80, "a"))
    assert not seen(one, run([range(0, 72, 2), range(1, 72, 2)], 80, "a"))  # the tail was dropped


def test_validation_samples_left_in() -> None:
    (said,) = seen(run([range(80)], 80), run([range(0, 100, 2), range(1, 100, 2)], 100))
    assert "100 samples" in said and "80" in said


def test_another_subset_of_the_same_size() -> None:
    assert seen(run([range(80)], 80, "a"), run([range(20, 60), range(60, 100)], 80, "b"))


def test_a_part_only() -> None:
    assert seen(run([range(80)], 80), run([range(20), range(20, 40)], 40))


def test_a_share_made_by_hand_is_the_same_data() -> None:
    assert not seen(run([range(80)], 80, "a"), run([range(0, 80, 2), range(1, 80, 2)], 40, "c"))


@pytest.mark.parametrize("sampler", ["WeightedRandomSampler", "Mine"])
def test_draws_of_another_kind_are_not_judged(sampler: str) -> None:
    assert not seen(run([range(80)], 80, sampler=sampler), run([range(10), range(10, 20)], 80))


SCRIPT = """
import os
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

on = "RANK" in os.environ
if on:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if on else (0, 1)
inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
data, _ = random_split(data, [48, 12], torch.Generator().manual_seed(@@))
sampler = DistributedSampler(data, world, rank)
loader = DataLoader(data, 8 // world, sampler=sampler)
torch.manual_seed(0)
net = nn.Linear(4, 1)
model = DistributedDataParallel(net) if on else net
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if on:
    dist.destroy_process_group()
"""


def test_two_scripts_with_other_splits(tmp_path: Path) -> None:
    home = tmp_path / "scripts"
    home.mkdir()
    for name, seed in (("train.py", "0"), ("same.py", "0"), ("other.py", "1")):
        (home / name).write_text(SCRIPT.replace("@@", seed), encoding="utf-8")
    same = prove(tmp_path / "a", home / "same.py", "--against", "train.py")
    assert same.done.code == 0, same.done.output
    other = prove(tmp_path / "b", home / "other.py", "--against", "train.py")
    assert other.codes() == {"LS415"}, other.done.output
