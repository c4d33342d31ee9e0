from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import default_collate

from lockstep.core.errors import UserError
from lockstep.recipes.digit_scenes import DigitScenes
from lockstep.recipes.scenes import CLASSES, IGNORE
from lockstep.runtime.config import load_config
from lockstep.runtime.loss import Term


def small() -> DigitScenes:
    return DigitScenes(size=32, train_scenes=12, val_scenes=6, digits_per_scene=3, width=4, depth=2)


def batch_of(recipe: DigitScenes, count: int = 4) -> dict[str, Tensor]:
    data = recipe.train_data()
    batch: dict[str, Tensor] = default_collate([data[index] for index in range(count)])
    return batch


class Constant(nn.Module):
    """Calls everything background."""

    def forward(self, image: Tensor) -> Tensor:
        logits = image.new_zeros(len(image), CLASSES, *image.shape[2:])
        logits[:, 0] = 1
        return logits


def miou(recipe: DigitScenes, model: nn.Module) -> float:
    metrics = recipe.metrics()
    data = recipe.val_data()
    assert data is not None
    for start in range(0, len(data), 16):
        recipe.evaluate(model, default_collate([data[i] for i in range(start, min(start + 16, len(data)))]), metrics)
    return float(metrics["miou"].compute())


def test_the_loss_is_a_sum_over_valid_pixels_and_their_count() -> None:
    recipe = small()
    batch, model = batch_of(recipe), recipe.model()
    term = recipe.loss(model, batch)["cross_entropy"]
    mean = F.cross_entropy(model(batch["image"]), batch["label"], ignore_index=IGNORE)
    torch.testing.assert_close(term.sum / term.count, mean)
    assert term.sum.requires_grad


def test_counts_say_before_the_forward_what_the_loss_says_after() -> None:
    recipe = small()
    batch = batch_of(recipe)
    terms: Mapping[str, Term] = recipe.loss(recipe.model(), batch)
    assert {name: int(term.count) for name, term in terms.items()} == {
        k: int(v) for k, v in recipe.counts(batch).items()
    }


def test_parts_of_a_batch_sum_to_the_whole_in_float64() -> None:
    recipe = small()
    batch, model = batch_of(recipe), recipe.model().double().eval()
    batch["image"] = batch["image"].double()
    parts = [{key: value[part] for key, value in batch.items()} for part in (slice(0, 1), slice(1, 4))]
    whole = recipe.loss(model, batch)["cross_entropy"]
    halves = [recipe.loss(model, part)["cross_entropy"] for part in parts]
    assert whole.sum.dtype == torch.float64
    torch.testing.assert_close(sum(half.sum for half in halves), whole.sum, rtol=1e-13, atol=0)
    assert sum(int(half.count) for half in halves) == int(whole.count)


def test_under_bf16_the_sum_is_kept_in_float32() -> None:
    recipe = small()
    with torch.autocast("cpu", torch.bfloat16):
        assert recipe.loss(recipe.model(), batch_of(recipe))["cross_entropy"].sum.dtype == torch.float32


def test_metrics_keep_integer_sums() -> None:
    for metric in small().metrics().values():
        for name, default in metric._defaults.items():
            assert isinstance(default, Tensor) and not default.is_floating_point(), name
            assert metric._reductions[name] is not None


def test_evaluation_runs_the_model_once_and_ignores_what_is_ignored() -> None:
    recipe = small()
    batch, metrics = batch_of(recipe), recipe.metrics()
    calls = []
    model = Constant()
    model.register_forward_hook(lambda *_: calls.append(1))
    terms = recipe.evaluate(model, batch, metrics)
    valid = batch["label"] != IGNORE
    background = (batch["label"] == 0).sum() / valid.sum()
    assert calls == [1] and set(terms) == {"cross_entropy"}
    torch.testing.assert_close(metrics["accuracy"].compute(), background)
    present = len(batch["label"][valid].unique())
    torch.testing.assert_close(metrics["miou"].compute(), background / present)


def test_a_constant_model_reaches_what_the_docstring_says() -> None:
    reached = miou(DigitScenes(), Constant())
    assert reached == pytest.approx(0.08, abs=0.005)
    assert f"{reached:.2f}" in (DigitScenes.__doc__ or "")


def test_labels_name_their_classes() -> None:
    labels = small().labels(batch_of(small()))
    assert labels.num_classes == CLASSES and labels.ignore_index == IGNORE
    assert set(labels.values.unique().tolist()) <= {*range(CLASSES), IGNORE}


def test_it_learns_what_it_sees() -> None:
    torch.manual_seed(0)
    recipe = DigitScenes(size=32, train_scenes=4, digits_per_scene=3, width=8, depth=2)
    batch, model = batch_of(recipe), recipe.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    means = []
    for _ in range(40):
        term = recipe.loss(model, batch)["cross_entropy"]
        mean = term.sum / term.count
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        means.append(float(mean.detach()))
    assert means[-1] < 0.15 * means[0]


def test_no_validation_scenes_means_no_validation() -> None:
    assert DigitScenes(val_scenes=0).val_data() is None


@pytest.mark.parametrize("wrong", [{"size": 60}, {"size": 16}, {"depth": 0}, {"width": 0}, {"digits_per_scene": 0}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        DigitScenes(**wrong)


def test_the_packaged_config_is_valid() -> None:
    config = load_config(None, ["recipe=digit_scenes"])
    assert config.best.metric == "val/miou" and config.batch.global_batch == 16
