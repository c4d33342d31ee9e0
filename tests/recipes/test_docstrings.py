import math
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.recipes.docstrings import IGNORE, Docstrings
from lockstep.recipes.texts import END, TOKENS
from lockstep.runtime.config import load_config


def small() -> Docstrings:
    return Docstrings(train_texts=60, val_texts=20, context=64, width=16, layers=1, heads=2)


def batch_of(recipe: Docstrings, indices: list[int]) -> dict[str, Tensor]:
    data = recipe.train_data()
    return recipe.collate([data[index] for index in indices])


def test_a_batch_is_padded_to_its_longest_and_the_target_is_the_next_byte() -> None:
    recipe = small()
    sizes = recipe.sizes(recipe.train_data())
    batch = batch_of(recipe, [0, 1, 2])
    assert batch["ids"].shape == batch["targets"].shape == (3, max(sizes[:3]))
    for row, size in enumerate(sizes[:3]):
        assert batch["ids"][row, 0] == END
        assert torch.equal(batch["ids"][row, 1:size], batch["targets"][row, : size - 1])
        assert (batch["targets"][row, size:] == IGNORE).all()


def test_sizes_are_the_counts_of_the_loss() -> None:
    recipe = small()
    sizes, model = recipe.sizes(recipe.train_data()), recipe.model()
    for indices in ([3], [0, 1, 2]):
        batch = batch_of(recipe, indices)
        term = recipe.loss(model, batch)["cross_entropy"]
        assert int(term.count) == int(recipe.counts(batch)["cross_entropy"]) == sum(sizes[i] for i in indices)


def test_parts_of_a_batch_sum_to_the_whole_in_float64() -> None:
    recipe = small()
    model = recipe.model().double()
    whole = recipe.loss(model, batch_of(recipe, [0, 1, 2, 3]))["cross_entropy"]
    parts = [recipe.loss(model, batch_of(recipe, part))["cross_entropy"] for part in ([2], [0, 3, 1])]
    assert whole.sum.dtype == torch.float64
    torch.testing.assert_close(sum(part.sum for part in parts), whole.sum, rtol=1e-13, atol=0)


def test_under_bf16_the_sum_is_kept_in_float32() -> None:
    recipe = small()
    with torch.autocast("cpu", torch.bfloat16):
        assert recipe.loss(recipe.model(), batch_of(recipe, [0]))["cross_entropy"].sum.dtype == torch.float32


class Frequencies(nn.Module):
    """Knows how frequent each byte of the training texts is."""

    def __init__(self, recipe: Docstrings) -> None:
        super().__init__()
        counts = Counter(token for sample in recipe.train_data() for token in sample[1:].tolist())
        self.logits = torch.tensor([counts[token] + 0.5 for token in range(TOKENS)]).log()

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits.expand(*ids.shape, TOKENS)


def test_a_model_that_knows_frequencies_reaches_the_floors() -> None:
    recipe = Docstrings()
    model, metrics, data = Frequencies(recipe), recipe.metrics(), recipe.val_data()
    assert data is not None
    total, count = 0.0, 0
    for start in range(0, len(data), 100):
        terms = recipe.evaluate(model, recipe.collate([data[i] for i in range(start, start + 100)]), metrics)
        total, count = total + float(terms["cross_entropy"].sum), count + int(terms["cross_entropy"].count)
    reached = {name: float(metric.compute()) for name, metric in metrics.items()}
    assert reached["bits_per_byte"] == pytest.approx(total / count / math.log(2), rel=1e-5)
    for name, floor in recipe.floors().items():
        assert reached[name] == pytest.approx(floor, rel=0.03)  # another Python has somewhat other texts
        assert f"{floor:.2f}" in (Docstrings.__doc__ or "")


def test_no_validation_text_is_trained_on() -> None:
    recipe = small()
    train, val = recipe.train_data(), recipe.val_data()
    assert val is not None and (len(train), len(val)) == (60, 20)
    assert not {tuple(s.tolist()) for s in train} & {tuple(s.tolist()) for s in val}
    assert Docstrings(train_texts=5, val_texts=0).val_data() is None


def test_it_learns_what_it_sees() -> None:
    torch.manual_seed(0)
    recipe = small()
    batch, model = batch_of(recipe, list(range(8))), recipe.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    means = []
    for _ in range(40):
        term = recipe.loss(model, batch)["cross_entropy"]
        mean = term.sum / term.count
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        means.append(float(mean.detach()))
    assert means[-1] < 0.6 * means[0]


@pytest.mark.parametrize("wrong", [{"width": 97}, {"context": 0}, {"layers": 0}, {"val_texts": -1}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        Docstrings(**wrong)


def test_the_packaged_config_counts_targets_and_a_stated_batch_takes_them_back() -> None:
    config = load_config(None, ["recipe=docstrings"])
    assert config.batch.global_targets and config.data.bucket and config.batch.global_batch is None
    other = load_config(None, ["recipe=docstrings", "batch.global_batch=32"])
    assert other.batch.global_targets is None and other.batch.global_batch == 32
