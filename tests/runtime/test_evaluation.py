"""A metric over an evaluation set that does not divide is the same to the last digit at every N."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchmetrics import CatMetric, MaxMetric, MeanMetric, Metric, MetricCollection, MinMetric, SumMetric
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix
from torchmetrics.regression import PearsonCorrCoef
from torchmetrics.wrappers import ClasswiseWrapper

from lockstep.core.errors import UserError
from lockstep.runtime.data.loader import Reading, eval_loader
from lockstep.runtime.evaluation import MergedMetric, check_metrics, evaluate, in_order, ordered_sum
from lockstep.runtime.loss import Term
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment


class Numbers(Dataset[dict[str, Tensor]]):
    """50 samples whose float sums depend on the order of addition."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.values = (
            torch.randn(length, generator=generator)
            * 10.0 ** torch.randint(-3, 4, (length,), generator=generator).float()
        )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.values[index], "y": torch.tensor(index % 3)}


class Everything(Recipe):
    """One metric of each kind of state: integer sums, float sums, lists, maximum, minimum, a vector, a collection."""

    def __init__(self, length: int = 50) -> None:
        self.length = length

    def model(self) -> nn.Module:
        return nn.Identity()

    def train_data(self) -> Dataset[Any]:
        return Numbers(self.length)

    def val_data(self) -> Dataset[Any]:
        return Numbers(self.length)

    def loss(self, model: nn.Module, batch: Any) -> Mapping[str, Term]:
        return {"loss": Term((batch["x"] ** 2).sum(), len(batch["x"]))}

    def metrics(self) -> Mapping[str, Metric]:
        return {
            "accuracy": MulticlassAccuracy(3),
            "per_class": MulticlassAccuracy(3, average=None),
            "mean": MeanMetric(),
            "sum": SumMetric(),
            "cat": CatMetric(),
            "max": MaxMetric(),
            "min": MinMetric(),
            "auroc": BinaryAUROC(),
        }

    def evaluate(self, model: nn.Module, batch: Any, metrics: Mapping[str, Metric]) -> Mapping[str, Term]:
        x, y = model(batch["x"]), batch["y"]
        guess = torch.stack([x.sin(), x.cos(), x.tanh()], 1)
        for name in ("accuracy", "per_class"):
            metrics[name].update(guess, y)
        for name in ("mean", "sum", "cat", "max", "min"):
            metrics[name].update(x)
        metrics["auroc"].update(x.sigmoid(), y == 0)
        return {"a": Term(x.sum(), len(x)), "b": Term(x.abs().sum(), 2 * len(x), 0.5)}


def evaluated(recipe: Recipe, batch: int) -> dict[str, float]:
    with World.enter(threads=1) as world:
        torch.manual_seed(0)
        model = recipe.model()
        data = recipe.val_data()
        assert data is not None
        sampler, loader = eval_loader(data, recipe, Reading(), world, batch)
        return evaluate(model, recipe, loader, sampler.batches, world, Precision.of("fp32", world.device))


@pytest.mark.parametrize("recipe", [Everything(50), Segment(val=50)], ids=["every state", "segmentation"])
def test_equal_to_the_last_digit_at_every_n(recipe: Recipe) -> None:
    one = run_ranks(evaluated, 1, recipe, 4)[0]
    for n in (2, 3, 4):
        assert run_ranks(evaluated, n, recipe, 4) == [one] * n
    assert {"val/loss"} < one.keys()


def test_more_ranks_than_batches() -> None:
    one = run_ranks(evaluated, 1, Everything(3), 2)[0]
    assert run_ranks(evaluated, 4, Everything(3), 2) == [one] * 4


def test_results_are_those_of_the_whole_set() -> None:
    result = run_ranks(evaluated, 2, Everything(50), 4)[0]
    values, labels = Numbers(50).values, torch.arange(50) % 3
    guess = torch.stack([values.sin(), values.cos(), values.tanh()], 1).argmax(1)
    right = (guess == labels).double()
    assert result["val/accuracy"] == pytest.approx(
        float(torch.stack([right[labels == c].mean() for c in range(3)]).mean())
    )
    assert result["val/mean"] == pytest.approx(float(values.double().mean()), rel=1e-6)
    assert result["val/loss/a"] == pytest.approx(float(values.double().mean()), rel=1e-6)
    assert result["val/loss"] == pytest.approx(
        float(values.double().mean() + 0.5 * values.double().abs().mean() / 2), rel=1e-5
    )
    assert [result[f"val/cat/{i}"] for i in range(50)] == values.tolist()
    assert result["val/max"] == float(values.max())
    assert {"val/per_class/0", "val/per_class/2", "val/auroc"} <= result.keys()


def test_a_metric_that_cannot_be_merged_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"'r'.*PearsonCorrCoef"):
        MergedMetric("r", PearsonCorrCoef())


def test_a_collection_is_explained() -> None:
    with pytest.raises(UserError, match="one by one"):
        MergedMetric("all", MetricCollection([MulticlassConfusionMatrix(2)]))


def test_order_of_batches() -> None:
    assert in_order([[(0, "a"), (2, "c")], [(1, "b")]]) == ["a", "b", "c"]
    shares = [torch.tensor(1e20), torch.tensor(1.0), torch.tensor(-1e20)]
    assert float(ordered_sum(shares, 0)) == 0.0


class Forgetful(Everything):
    evaluate = Recipe.evaluate


def test_metrics_that_nobody_updates_are_refused() -> None:
    check_metrics(Everything())
    with pytest.raises(UserError, match=r"Forgetful has metrics\(\) and no evaluate\(\)"):
        check_metrics(Forgetful())


def test_a_metric_around_another_is_refused() -> None:
    with pytest.raises(UserError, match="keeps its state in other metrics"):
        MergedMetric("each", ClasswiseWrapper(MulticlassAccuracy(3, average=None)))
