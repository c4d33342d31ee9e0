import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lockstep.core.errors import UserError
from lockstep.recipes.points import Points, SpiralSet
from lockstep.runtime.config import load_config


def test_points_are_a_function_of_the_seed() -> None:
    first, again, other = SpiralSet(30, 3, 0.03, 0), SpiralSet(30, 3, 0.03, 0), SpiralSet(30, 3, 0.03, 1)
    assert torch.equal(first.points, again.points) and not torch.equal(first.points, other.points)
    assert first.points.dtype == torch.float32 and first.points.abs().max() < 1.2


def test_every_class_has_its_share() -> None:
    assert SpiralSet(30, 3, 0.03, 0).labels.bincount().tolist() == [10, 10, 10]


def test_jitter_follows_the_global_generator() -> None:
    data = SpiralSet(30, 3, 0.03, 0, jitter=0.1)
    torch.manual_seed(1)
    first, second = data[4]["point"], data[4]["point"]
    torch.manual_seed(1)
    assert torch.equal(first, data[4]["point"]) and not torch.equal(first, second)


def test_training_and_validation_points_differ() -> None:
    recipe = Points()
    val = recipe.val_data()
    assert val is not None and len(val) == 600 and len(recipe.train_data()) == 3000
    assert not torch.equal(val.points[0], recipe.train_data().points[0])
    assert Points(val_samples=0).val_data() is None


def kinds(model: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in model.children()]


def test_batchnorm_and_dropout_come_only_when_asked_for() -> None:
    assert kinds(Points(layers=1).model()) == ["Linear", "ReLU", "Linear"]
    assert kinds(Points(layers=1, batchnorm=True, dropout=0.5).model()) == [
        "Linear",
        "BatchNorm1d",
        "ReLU",
        "Dropout",
        "Linear",
    ]


def test_loss_counts_and_labels_agree() -> None:
    recipe = Points()
    batch: dict[str, Tensor] = next(iter(DataLoader(recipe.train_data(), 7)))
    term = recipe.loss(recipe.model(), batch)["cross_entropy"]
    assert term.count == recipe.counts(batch)["cross_entropy"] == 7
    assert recipe.labels(batch).num_classes == 3 and recipe.labels(batch).ignore_index is None


def test_it_learns_in_a_second_with_the_packaged_settings() -> None:
    torch.manual_seed(0)
    config = load_config(None, ["recipe=points"])
    recipe = Points()
    model = recipe.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optim.lr, weight_decay=config.optim.weight_decay)
    for _ in range(config.stop.epochs):
        for batch in DataLoader(recipe.train_data(), config.batch.global_batch, shuffle=True):
            term = recipe.loss(model, batch)["cross_entropy"]
            optimizer.zero_grad()
            (term.sum / term.count).backward()
            optimizer.step()
    metrics = recipe.metrics()
    for batch in DataLoader(recipe.val_data(), 200):  # type: ignore[arg-type]
        recipe.evaluate(model.eval(), batch, metrics)
    assert metrics["accuracy"].compute() > 0.9
    assert not any(
        value.is_floating_point() for value in metrics["accuracy"]._defaults.values() if isinstance(value, Tensor)
    )


@pytest.mark.parametrize("wrong", [{"classes": 1}, {"hidden": 0}, {"layers": 0}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        Points(**wrong)  # type: ignore[arg-type]
