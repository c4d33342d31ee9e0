"""Folders of Accelerate and Hugging Face."""

import json
from pathlib import Path

import pytest
import torch

from lockstep.runtime.foreign.model_folder import index_of, kind_of, matches, models_in, read, rest_in, weight_map
from lockstep.runtime.foreign.window import DamagedFileError
from tests.runtime.foreign.samples import accelerate_state, net, sharded


@pytest.mark.parametrize("safe", [True, False])
def test_the_state_of_accelerate(tmp_path: Path, safe: bool) -> None:
    model = accelerate_state(tmp_path / "a", safe=safe)
    assert matches(tmp_path / "a") and not matches(tmp_path)
    found = read(tmp_path / "a")
    assert found.kind == "folder of Accelerate's save_state" and found.weights == "model"
    assert found.facts["optimizer.bin"].startswith("Adam or AdamW, lr 0.01")
    assert not found.dangerous and "optimizer" in found.groups
    loaded = {name: entry.load() for name, entry in found.groups["model"].items()}
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
    assert [path.name for path in rest_in(tmp_path / "a")] == ["optimizer.bin", "random_states_0.pkl"]


def test_shards_by_an_index(tmp_path: Path) -> None:
    model = sharded(tmp_path / "hf")
    found = read(tmp_path / "hf")
    assert kind_of(tmp_path / "hf").startswith("folder of Hugging Face") and found.facts["shards"] == 2
    loaded = {name: entry.load() for name, entry in found.groups["model"].items()}
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
    assert models_in(tmp_path / "hf") == []


def test_what_the_index_names_must_be_there(tmp_path: Path) -> None:
    sharded(tmp_path / "hf")
    index = index_of(tmp_path / "hf")
    assert index is not None
    named = json.loads(index.read_text())
    named["weight_map"]["extra"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(named))
    with pytest.raises(DamagedFileError, match="names extra, which is not in"):
        read(tmp_path / "hf")
    (tmp_path / "hf" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DamagedFileError, match=r"names model-00002-of-00002\.safetensors, which is not there"):
        read(tmp_path / "hf")
    index.write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(DamagedFileError, match="of another folder"):
        weight_map(index)
    index.write_text("{")
    with pytest.raises(DamagedFileError, match="cannot be read"):
        weight_map(index)


def test_a_second_model_is_a_part_of_its_own(tmp_path: Path) -> None:
    accelerate_state(tmp_path / "a")
    from safetensors.torch import save_file

    save_file(net(1).state_dict(), tmp_path / "a" / "model_1.safetensors")
    found = read(tmp_path / "a")
    assert found.weights == "model" and found.groups["model_1"].keys() == found.groups["model"].keys()
