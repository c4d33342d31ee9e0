"""Batches on disk: appended whole, read until where a killed process stopped."""

from pathlib import Path

import pytest
import torch

from lockstep.trace.kept import Kept, keep, kept


def test_what_was_kept_is_read_in_order(tmp_path: Path) -> None:
    batches = [Kept((1, 2), None), Kept(None, {"x": torch.ones(2, 3)})]
    for one in batches:
        keep(tmp_path / "pass", one)
    found = kept(tmp_path / "pass")
    assert found[0] == batches[0]
    assert torch.equal(found[1].batch["x"], torch.ones(2, 3))


@pytest.mark.parametrize("lost", [1, 3, 7])
def test_a_last_value_that_is_cut_is_left_out(tmp_path: Path, lost: int) -> None:
    for number in range(3):
        keep(tmp_path / "pass", Kept((number,), None))
    path = tmp_path / "pass"
    path.write_bytes(path.read_bytes()[:-lost])
    assert [one.keys for one in kept(path)] == [(0,), (1,)]


def test_a_batch_is_cut_and_joined_with_its_indices() -> None:
    one, two = Kept((4, 5), torch.tensor([4, 5])), Kept((6,), torch.tensor([6]))
    joined = Kept.join([one, two])
    assert joined.keys == (4, 5, 6)
    assert joined.rows(1, 3).keys == (5, 6)
    assert joined.rows(1, 3).batch.tolist() == [5, 6]
