"""Whole, damaged, left over: of a run, of folders, of files."""

from pathlib import Path

import pytest
import torch

from lockstep.runtime.foreign.wholeness import check
from lockstep.runtime.foreign.window import NoCheckpointError
from lockstep.runtime.state.checkpoint import point_to_best
from tests.runtime.foreign.samples import accelerate_state, sharded, training, traps
from tests.runtime.state.snapshots import DAMAGES, FILES, written


def states(path: Path) -> dict[str, str]:
    return {one.path.name: one.state for one in check(path)}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_every_damage_of_our_own_is_seen(tmp_path: Path, file: str, damage: str) -> None:
    folder = tmp_path / "run" / "checkpoints"
    older, newest = written(folder, 1, 2)
    DAMAGES[damage](newest / file)
    found = list(check(tmp_path / "run"))
    assert [(one.path, one.state) for one in found[:2]] == [(newest, "damaged"), (older, "whole")]
    assert found[-1].detail == "a resume takes step-00000001"


def test_what_was_left_is_told_apart_from_damage(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    (one,) = written(folder, 1)
    (folder / ".writing-step-00000002").mkdir()
    point_to_best(folder, 1)
    (one / "stray.txt").touch()
    assert states(folder) == {
        "step-00000001": "whole",
        ".writing-step-00000002": "left over",
        "best": "whole",
        "checkpoints": "note",
    }
    assert "stray.txt" in next(check(one)).detail
    point_to_best(folder, 9)
    assert states(folder)["best"] == "damaged"
    assert states(folder / ".writing-step-00000002") == {".writing-step-00000002": "damaged"}


def test_folders_of_others(tmp_path: Path) -> None:
    accelerate_state(tmp_path / "acc")
    assert states(tmp_path / "acc") == {
        "model.safetensors": "whole",
        "optimizer.bin": "whole",
        "random_states_0.pkl": "whole",
    }
    (tmp_path / "acc" / "optimizer.bin").write_bytes((tmp_path / "acc" / "optimizer.bin").read_bytes()[:-99])
    assert states(tmp_path / "acc")["optimizer.bin"] == "damaged"
    sharded(tmp_path / "hf")
    assert set(states(tmp_path / "hf").values()) == {"whole"}
    (tmp_path / "hf" / "model-00001-of-00002.safetensors").unlink()
    assert states(tmp_path / "hf") == {"hf": "damaged", "model-00002-of-00002.safetensors": "whole"}


def test_files(tmp_path: Path) -> None:
    training(tmp_path / "a.pt")
    (found,) = check(tmp_path / "a.pt")
    assert found.state == "whole" and "SHA-256" in found.detail
    whole = (tmp_path / "a.pt").read_bytes()
    for size in range(0, len(whole), len(whole) // 40):
        (tmp_path / "a.pt").write_bytes(whole[:size])
        if size:
            assert states(tmp_path / "a.pt") == {"a.pt": "damaged"}, size
    (tmp_path / "b.pkl").write_bytes(traps(tmp_path / "x")["os.system"])
    assert states(tmp_path / "b.pkl") == {"b.pkl": "refused"}
    (tmp_path / "c.pt").touch()
    with pytest.raises(NoCheckpointError, match="empty"):
        list(check(tmp_path / "c.pt"))
    torch.save(torch.ones(3), tmp_path / "d.pt")
    assert states(tmp_path / "d.pt") == {"d.pt": "whole"}
