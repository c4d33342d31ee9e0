"""A run's own batches, to be yielded again rank by rank."""

from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep.proof.replay import write_record
from lockstep.trace.events import Batch
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.kept import kept, streams_file
from tests.rules.by_hand import trace

STREAM = "TensorDataset/8/8#0"


def batch(number: int, index: int, *ids: int) -> Batch:
    return Batch(loader=0, stream=STREAM, number=number, batch=index, ids=ids)


def test_each_rank_gets_its_own_passes_again(tmp_path: Path) -> None:
    run = trace(
        [batch(0, 0, 1, 2), batch(0, 1, 3, 4), batch(1, 0, 7, 6)],
        [batch(0, 0, 5, 6), batch(1, 0, 0, 1)],
    )
    write_record(run, tmp_path)
    loader = DataLoader(TensorDataset(torch.arange(8.0)), 2)
    for rank, wanted in enumerate(([[7.0, 6.0]], [[0.0, 1.0]])):
        plan = FeedPlan("mirror", tmp_path / str(rank), begun=((STREAM, 1, 0),))
        found = [content[0].tolist() for _, content in Feed(plan).batches(loader, STREAM, 0)]
        assert found == wanted


def test_a_rank_without_indices_has_no_passes(tmp_path: Path) -> None:
    write_record(trace([Batch(loader=0, stream=STREAM, number=0, batch=0)]), tmp_path)
    assert kept(streams_file(tmp_path / "0")) == []
