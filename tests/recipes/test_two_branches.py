import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lockstep.core.errors import UserError
from lockstep.recipes.two_branches import Branched, DigitSet, TwoBranches
from lockstep.runtime.config import load_config


def test_the_dark_share_is_what_was_asked_for_and_always_the_same() -> None:
    data = DigitSet(False, 0.1, 0.0)
    assert len(data) == 1437 and len(DigitSet(True, 0.1, 0.0)) == 360
    assert abs(data.dark.float().mean() - 0.1) < 0.01
    assert torch.equal(data.dark, DigitSet(False, 0.1, 0.0).dark)
    assert not DigitSet(False, 0.0, 0.0).dark.any() and DigitSet(False, 1.0, 0.0).dark.all()
    # White ink on black, or black on white.
    means = data.images.mean(1)
    assert means[data.dark].max() < 0.5 < means[~data.dark].min() and data.images.dtype == torch.float32


def test_a_sample_goes_through_its_branch_alone_and_keeps_its_place() -> None:
    torch.manual_seed(0)
    model = Branched(8).double()
    image = torch.randn(6, 64, dtype=torch.float64)
    dark = torch.tensor([True, False, False, True, False, True])
    whole = model(image, dark)
    for row in range(6):
        branch = model.dark if dark[row] else model.light
        torch.testing.assert_close(whole[row], model.head(branch(model.trunk(image[row]))))


@pytest.mark.parametrize("which", [True, False])
def test_the_other_branch_has_no_gradient(which: bool) -> None:
    model = Branched(8)
    model(torch.randn(3, 64), torch.full((3,), which)).sum().backward()
    used, unused = (model.dark, model.light) if which else (model.light, model.dark)
    assert all(p.grad is None for p in unused.parameters()) and all(p.grad is not None for p in used.parameters())


def test_loss_counts_metrics_and_labels_agree() -> None:
    recipe = TwoBranches()
    batch: dict[str, Tensor] = next(iter(DataLoader(recipe.train_data(), 40)))
    term = recipe.loss(recipe.model(), batch)["cross_entropy"]
    assert term.count == recipe.counts(batch)["cross_entropy"] == 40
    metrics = recipe.metrics()
    recipe.evaluate(recipe.model(), batch, metrics)
    totals = {name: int(metric.tp + metric.fn) for name, metric in metrics.items()}  # type: ignore[operator]
    assert totals == {"accuracy": 40, "dark": int(batch["dark"].sum())}
    assert recipe.labels(batch).num_classes == 10 and recipe.floors().keys() == metrics.keys()


@pytest.mark.parametrize("wrong", [{"dark_share": 1.5}, {"hidden": 0}, {"noise": -0.1}])
def test_impossible_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        TwoBranches(**wrong)  # type: ignore[arg-type]


def test_the_packaged_config_is_valid() -> None:
    assert load_config(None, ["recipe=two_branches"]).batch.global_batch == 16
