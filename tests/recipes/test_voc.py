from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import default_collate

from lockstep.core.errors import UserError
from lockstep.recipes.files import bad
from lockstep.recipes.resunet import ResUNet
from lockstep.recipes.unet import UNet
from lockstep.recipes.voc import Voc
from lockstep.runtime.config import load_config
from lockstep.runtime.data.samples import KeyedDataset
from tests.recipes.pictures import voc_folder

SMALL: dict[str, Any] = {"classes": 5, "crop": 32, "eval_size": 64, "width": 4, "depth": 2, "blocks": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(voc_folder(tmp_path_factory.mktemp("voc")))


def batch_of(recipe: Voc) -> dict[str, Tensor]:
    data = recipe.train_data()
    batch: dict[str, Tensor] = default_collate([data[index] for index in range(4)])
    return batch


def test_the_loss_is_a_sum_over_valid_pixels_and_their_count(root: str) -> None:
    recipe = Voc(root, **SMALL)
    batch, model = batch_of(recipe), recipe.model()
    term = recipe.loss(model, batch)["cross_entropy"]
    mean = F.cross_entropy(model(batch["image"]), batch["label"].long(), ignore_index=255)
    torch.testing.assert_close(term.sum / term.count, mean)
    assert recipe.counts(batch)["cross_entropy"] == term.count < batch["label"].numel()


def test_a_perfect_model_is_perfect_and_integers_are_summed(root: str) -> None:
    recipe = Voc(root, **SMALL)
    batch = batch_of(recipe)
    metrics = recipe.metrics()

    class Oracle(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return F.one_hot(batch["label"].long().clamp(max=4), 5).permute(0, 3, 1, 2).float()

    recipe.evaluate(Oracle(), batch, metrics)
    assert {name: float(metric.compute()) for name, metric in metrics.items()} == {"miou": 1.0, "accuracy": 1.0}
    assert not any(default.is_floating_point() for metric in metrics.values() for default in metric._defaults.values())
    assert recipe.floors() == {"miou": 0.2}
    labels = recipe.labels(batch)
    assert labels.num_classes == 5 and labels.ignore_index == 255


def test_training_samples_are_a_function_of_seed_epoch_and_index(root: str) -> None:
    data = Voc(root, **SMALL).train_data()

    def read(seed: int, epoch: int, index: int) -> Tensor:
        image: Tensor = KeyedDataset(data, seed, "train").__getitems__([(epoch, index)]).samples[0]["image"]  # type: ignore[union-attr]
        return image

    first = read(0, 0, 2)
    read(0, 0, 5)
    assert torch.equal(first, read(0, 0, 2))
    assert not any(torch.equal(first, other) for other in (read(1, 0, 2), read(0, 1, 2), read(0, 0, 3)))


def test_models_by_option(root: str) -> None:
    assert isinstance(Voc(root, **SMALL).model(), ResUNet)
    unet = Voc(root, model="unet", **SMALL).model()
    assert isinstance(unet, UNet) and unet(torch.zeros(1, 3, 32, 32)).shape == (1, 5, 32, 32)


def test_the_default_model_is_small_enough_for_a_first_look() -> None:
    parameters = sum(p.numel() for p in Voc("anywhere").model().parameters())
    assert 1e6 < parameters < 2e7, parameters


@pytest.mark.parametrize(
    "wrong",
    [
        {"crop": 30},
        {"eval_size": 50},
        {"classes": 1},
        {"ignore": 3},
        {"ignore": 256},
        {"flip": 1.5},
        {"jitter": -1.0},
        {"scale": (2.0, 1.0)},
        {"depth": 0},
        {"width": 0},
        {"blocks": 0},
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    shown = list(value) if isinstance(value, tuple) else value
    with pytest.raises(UserError) as caught:
        Voc("anywhere", **{**SMALL, **wrong})
    assert f"{name}={shown}" in str(caught.value)


def test_the_same_sample_in_both_splits_is_refused(root: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"8 samples are in train\.txt and in trainval\.txt, such as '2007_000000'"):
        Voc(root, val_split="trainval", **SMALL).train_data()
    # The very same list is an intention, not an oversight.
    assert len(Voc(root, val_split="train", **SMALL).train_data()) == 8
    assert Voc(root, val_split=None, **SMALL).val_data() is None


def test_without_pillow_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pillow"):
        Voc("anywhere")


def test_the_packaged_config_is_valid() -> None:
    config = load_config(None, ["recipe=voc", "options.root=anywhere"])
    assert config.best.metric == "val/miou" and config.parallel.sync_batchnorm
