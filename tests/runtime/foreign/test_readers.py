"""Every kind of checkpoint has one reader, and what has none is named."""

from pathlib import Path

import pytest
import torch

from lockstep.runtime.foreign.readers import READERS, NoCheckpointError, open_checkpoint, reader_of
from tests.runtime.foreign.samples import accelerate_state, lightning, sharded, training
from tests.runtime.state.snapshots import written


def test_every_kind_has_its_reader(tmp_path: Path) -> None:
    training(tmp_path / "a.pt")
    lightning(tmp_path / "b.ckpt")
    accelerate_state(tmp_path / "acc")
    sharded(tmp_path / "hf")
    own = written(tmp_path / "run", 1)[0]
    paths = {
        "a.pt": "file",
        "b.ckpt": "file",
        "acc": "folder of a model",
        "hf": "folder of a model",
        "run": "run of Lockstep",
    }
    for path, kind in {**paths, str(own): "checkpoint of Lockstep"}.items():
        assert kind == reader_of(tmp_path / path).KIND
        assert open_checkpoint(tmp_path / path).weights is not None
    assert len({reader.KIND for reader in READERS}) == len(READERS)


def test_what_is_none_is_named(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "x.pt")
    torch.save({}, tmp_path / "y.pt")
    for name, inside in (("empty", ()), ("deep", ("latest", "global_step5")), ("other", ("notes.txt",))):
        (tmp_path / name).mkdir()
        for one in inside:
            (tmp_path / name / one).touch()
    (tmp_path / "link").symlink_to("nowhere")
    told = {
        "nowhere": "is not there",
        "link": "a link to nothing",
        ".": r"folder with 2 checkpoints \(x.pt, y.pt\); name one",
        "empty": "an empty folder",
        "deep": "folder of DeepSpeed",
        "other": "without a checkpoint; in it: notes.txt",
    }
    for name, text in told.items():
        with pytest.raises(NoCheckpointError, match=text):
            reader_of(tmp_path / name)
