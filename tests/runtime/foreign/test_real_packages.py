"""Checkpoints that Accelerate and Lightning themselves have written; the other tests use files like theirs."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.runtime.foreign.readers import open_checkpoint
from lockstep.runtime.foreign.take import weights_from
from lockstep.runtime.foreign.wholeness import check
from tests.runtime.foreign.samples import net


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Others' warnings are not ours; a variable that Lightning sets goes when the test ends."""
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def test_accelerate(tmp_path: Path, quiet: None) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(model(torch.ones(2, 3)).sum())
    optimizer.step()
    for name, safe in (("safe", True), ("bin", False)):
        accelerator.save_state(str(tmp_path / name), safe_serialization=safe)
        found = open_checkpoint(tmp_path / name)
        assert found.kind == "folder of Accelerate's save_state" and not found.dangerous
        assert found.facts["optimizer.bin"].startswith("SGD with momentum, lr 0.1")
        weights = weights_from(tmp_path / name)
        assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
        assert {one.state for one in check(tmp_path / name)} == {"whole"}
    accelerator.save_model(model, str(tmp_path / "model"), max_shard_size=100)
    assert open_checkpoint(tmp_path / "model").facts["shards"] > 1
    assert len(weights_from(tmp_path / "model")) == 9


def test_lightning(tmp_path: Path, quiet: None) -> None:
    lightning: Any = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = net()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch[0]).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.ones(4, 3))
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=1, default_root_dir=tmp_path, enable_checkpointing=False, **options)
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=2))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    found = open_checkpoint(tmp_path / "a.ckpt")
    assert found.kind == "Lightning checkpoint" and not found.dangerous and found.weights == "state_dict"
    assert (found.facts["epoch"], found.facts["global_step"], found.facts["hyper_parameters"]) == (1, 2, "width")
    assert found.facts["optimizer_states"].startswith("Adam or AdamW, lr 0.01")
    weights = weights_from(tmp_path / "a.ckpt")
    assert all(torch.equal(weights[f"model.{key}"], value) for key, value in module.model.state_dict().items())
