"""A checkpoint is whole or refused by name; a newer good one exists before an older one goes."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lockstep.runtime.state.checkpoint as module
from lockstep.core.errors import UserError
from lockstep.runtime.state.checkpoint import (
    MANIFEST,
    DamagedError,
    Snapshot,
    listing,
    name_of,
    newest_whole,
    point_to_best,
    prune,
    read,
    verify,
    write,
)
from tests.runtime.state.snapshots import DAMAGES, FILES, flip, names, snapshot, written


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "folder", snapshot(120))
    assert path.name == "step-00000120"
    assert names(path) == sorted(FILES)
    found = read(path)
    assert found.path == path
    assert torch.equal(found.tensors["net.weight"], torch.full((64, 8), 120.0))
    assert torch.equal(found.trainer["optimizer"]["state"][0]["exp_avg"], torch.full((64, 8), 120.0))
    assert found.trainer["position"]["step"] == found.manifest["step"] == 120
    assert found.manifest["num_ranks"] == 2


def test_ties_come_back_under_all_their_names(tmp_path: Path) -> None:
    shot = snapshot(1)
    tied = Snapshot(1, shot.tensors, {"head.weight": "net.weight"}, shot.trainer, shot.about)
    found = read(write(tmp_path, tied)).tensors
    assert set(found) == {"net.weight", "net.bias", "head.weight"}
    assert torch.equal(found["head.weight"], found["net.weight"])


def test_a_manifest_of_any_plain_values_is_whole(tmp_path: Path) -> None:
    shot = snapshot(1)
    about = {"best": float("nan"), "betas": (0.9, 0.99), "weights": {10: 1, 2: 3}, "name": "Größe \u2028", "lr": 1e-5}
    path = write(tmp_path, Snapshot(1, shot.tensors, {}, shot.trainer, about))
    assert verify(path)["betas"] == [0.9, 0.99]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_refused_by_name_and_the_one_before_is_used(
    tmp_path: Path, file: str, damage: Callable[[Path], None]
) -> None:
    before, newest = written(tmp_path, 10, 20)
    damage(newest / file)
    path, refused = newest_whole(tmp_path)
    assert path == before
    assert len(refused) == 1
    assert refused[0].startswith(str(newest / file))
    with pytest.raises(DamagedError, match=file):
        read(newest)


def test_any_flipped_bit_is_seen(tmp_path: Path) -> None:
    (path,) = written(tmp_path, 1)
    dice = random.Random(0)
    for file in FILES:
        size = (path / file).stat().st_size
        places = range(dice.randrange(9), 8 * size, 9) if file == MANIFEST else dice.sample(range(8 * size), 100)
        for place in places:
            flip(path / file, place // 8, place % 8)
            with pytest.raises(DamagedError, match=file):
                verify(path)
            flip(path / file, place // 8, place % 8)
    verify(path)


def test_files_of_two_checkpoints_do_not_mix(tmp_path: Path) -> None:
    before, newest = written(tmp_path, 10, 20)
    (before / "trainer.pt").replace(newest / "trainer.pt")
    with pytest.raises(DamagedError, match=r"trainer\.pt differs"):
        verify(newest)


def test_all_damaged_is_none_with_every_reason(tmp_path: Path) -> None:
    for path in written(tmp_path, 1, 2, 3):
        (path / MANIFEST).unlink()
    path, refused = newest_whole(tmp_path)
    assert path is None
    assert [reason.split("/")[-2] for reason in refused] == [name_of(3), name_of(2), name_of(1)]
    assert newest_whole(tmp_path / "nowhere") == (None, [])


def test_listing_takes_finished_checkpoints_only(tmp_path: Path) -> None:
    written(tmp_path, 5, 100_000_000, 40)
    for name in (".writing-step-00000050", "step-7", "step-00000060.tmp", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000070").touch()
    assert [path.name for path in listing(tmp_path)] == ["step-100000000", "step-00000040", "step-00000005"]


def test_one_that_was_being_replaced_is_the_last_choice_of_its_step(tmp_path: Path) -> None:
    path = written(tmp_path, 4, 5)[1]
    path.rename(tmp_path / ".replaced-step-00000005")
    assert [one.name for one in listing(tmp_path)] == [".replaced-step-00000005", "step-00000004"]
    written(tmp_path / "other", 5)[0].rename(path)
    assert [one.name for one in listing(tmp_path)] == [path.name, ".replaced-step-00000005", "step-00000004"]
    flip(path / MANIFEST, 3, 0)
    found, refused = newest_whole(tmp_path)
    assert found == tmp_path / ".replaced-step-00000005"
    assert len(refused) == 1


def test_the_same_step_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, snapshot(3, value=1.0))
    path = write(tmp_path, snapshot(3, value=2.0))
    assert float(read(path).tensors["net.bias"][0]) == 2.0
    prune(tmp_path, path, 1)
    assert names(tmp_path) == [name_of(3)]


class DiskFullError(OSError):
    pass


def full(*_: object, **__: object) -> None:
    raise DiskFullError(28, "No space left on device")


@pytest.mark.parametrize("stage", ["save_file", "torch.save", "file_digest", "flush", "rename_durably"])
def test_a_failed_write_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    written(tmp_path, 3)
    target = torch if stage == "torch.save" else module
    monkeypatch.setattr(target, stage.removeprefix("torch."), full)
    for step in (3, 4):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, snapshot(step, value=9.0))
    monkeypatch.undo()
    path, refused = newest_whole(tmp_path)
    assert path is not None and not refused
    assert float(read(path).tensors["net.bias"][0]) == 3.0
    assert not list(tmp_path.glob(".writing*"))


def test_the_only_copy_survives_a_second_death_in_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two renames, resumed, and killed again while the same step is written anew."""
    written(tmp_path, 3)
    (tmp_path / name_of(3)).rename(tmp_path / ".replaced-step-00000003")
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, snapshot(3, value=9.0))
    monkeypatch.undo()
    assert newest_whole(tmp_path)[0] is not None


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    paths = written(tmp_path, 1, 2, 3, 4, 5)
    (tmp_path / ".writing-step-00000006").mkdir()
    point_to_best(tmp_path, 2)
    prune(tmp_path, paths[-1], 2)
    assert names(tmp_path) == ["best", name_of(2), name_of(4), name_of(5)]
    point_to_best(tmp_path, 5)
    prune(tmp_path, paths[-1], 1)
    assert names(tmp_path) == ["best", name_of(5)]


def test_pruning_never_takes_what_was_just_written(tmp_path: Path) -> None:
    """A run that was resumed before a damaged checkpoint writes smaller steps than that one has."""
    *_, damaged = written(tmp_path, 10, 20, 30)
    flip(damaged / MANIFEST, 0, 0)
    fresh = write(tmp_path, snapshot(25))
    prune(tmp_path, fresh, 1)
    assert names(tmp_path) == [name_of(25)]
    assert newest_whole(tmp_path) == (fresh, [])


def test_pruning_puts_a_replaced_one_back_that_has_no_successor(tmp_path: Path) -> None:
    written(tmp_path, 1, 2)
    (tmp_path / name_of(1)).rename(tmp_path / ".replaced-step-00000001")
    prune(tmp_path, tmp_path / name_of(2), 2)
    assert names(tmp_path) == [name_of(1), name_of(2)]


def test_best_is_a_link_that_moves_and_goes_with_its_target(tmp_path: Path) -> None:
    paths = written(tmp_path, 1, 2, 3)
    for step in (1, 2):
        point_to_best(tmp_path, step)
        assert (tmp_path / "best").resolve() == tmp_path / name_of(step)
    verify(tmp_path / "best")
    assert len(listing(tmp_path)) == 3
    prune(tmp_path, paths[-1], 1)
    assert names(tmp_path) == ["best", name_of(2), name_of(3)]
    shutil.rmtree(tmp_path / name_of(2))
    prune(tmp_path, paths[-1], 1)
    assert names(tmp_path) == [name_of(3)]


class Own:
    """Something that is no plain value."""


def test_more_than_plain_values_is_refused_with_words(tmp_path: Path) -> None:
    shot = snapshot(1)
    path = write(tmp_path, Snapshot(1, shot.tensors, {}, {**shot.trainer, "extra_state": Own()}, {}))
    with pytest.raises(UserError, match=r"get_extra_state") as caught:
        read(path)
    assert "Where: " + str(path / "trainer.pt") in str(caught.value)


def test_manifest_is_json_for_people(tmp_path: Path) -> None:
    (path,) = written(tmp_path, 2)
    manifest = json.loads((path / MANIFEST).read_text())
    assert manifest["step"] == 2
    assert set(manifest["files"]) == {"model.safetensors", "trainer.pt"}
    assert all(len(digest) == 64 for digest in manifest["files"].values())
