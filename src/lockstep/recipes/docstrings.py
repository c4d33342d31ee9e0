"""A small language model over the bytes of Python's docstrings: samples of very different sizes."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain
from lockstep.recipes.texts import END, TOKENS, TextSet, shuffled_texts
from lockstep.recipes.transformer import Transformer
from lockstep.runtime.loss import Count, Term, Terms
from lockstep.runtime.recipe import Labels, Recipe

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]

IGNORE = -100
"""The target of padding."""


class Docstrings(Recipe):
    """Say the next byte of a docstring of Python's standard library.

    A model that knows how frequent each byte is, and nothing else, needs 4.78 bits per byte and is right for 0.14 of
    the bytes (it always says a space). Trained as its packaged config says, it needs about 3.5.

    Args:
        train_texts: docstrings in an epoch; the library has about 7,000.
        val_texts: docstrings of the validation set, none of which is trained on; 0 for none.
        context: most bytes of a docstring; the rest of a longer one is left out.
        width: size of a token's vector, a multiple of `heads`.
        layers: blocks of the transformer.
        heads: attention heads of a block.

    Raises:
        UserError: an option that no text or model can have.
    """

    def __init__(
        self,
        train_texts: int = 3000,
        val_texts: int = 300,
        context: int = 256,
        width: int = 96,
        layers: int = 3,
        heads: int = 4,
    ) -> None:
        if min(train_texts, context, width, layers, heads) < 1 or val_texts < 0 or width % heads:
            given = f"{train_texts=}, {val_texts=}, {context=}, {width=}, {layers=}, {heads=}"
            must = "each at least 1 (val_texts 0 or more), and width a multiple of heads"
            seen = f"options that no text or model can have: {given}"
            raise UserError(explain(seen, must, "options of the recipe docstrings"))
        self.train_texts, self.val_texts, self.context = train_texts, val_texts, context
        self.width, self.layers, self.heads = width, layers, heads

    def model(self) -> nn.Module:
        """A new transformer: (N, T) bytes -> (N, T, 257)."""
        return Transformer(TOKENS, self.width, self.layers, self.heads, self.context)

    def train_data(self) -> TextSet:
        """The docstrings to learn from."""
        return TextSet(self._texts()[self.val_texts :], self.context)

    def val_data(self) -> TextSet | None:
        """Other docstrings."""
        return TextSet(self._texts()[: self.val_texts], self.context) if self.val_texts else None

    def _texts(self) -> tuple[str, ...]:
        return shuffled_texts(self.train_texts + self.val_texts)

    def collate(self, samples: list[Tensor]) -> dict[str, Tensor]:
        """`{"ids": (N, T), "targets": (N, T)}`, T the longest; padding has the target `IGNORE`."""
        ids = pad_sequence([sample[:-1] for sample in samples], batch_first=True, padding_value=END)
        targets = pad_sequence([sample[1:] for sample in samples], batch_first=True, padding_value=IGNORE)
        return {"ids": ids, "targets": targets}

    def loss(self, model: nn.Module, batch: Batch) -> Terms:
        """Cross entropy of every byte that is no padding."""
        return self._terms(model(batch["ids"]), batch)

    def counts(self, batch: Batch) -> Mapping[str, Count]:
        """The number of targets that are no padding."""
        return {"cross_entropy": (batch["targets"] != IGNORE).sum()}

    def sizes(self, data: Dataset[Tensor]) -> Sequence[int]:
        """The bytes of each docstring, and its end."""
        assert isinstance(data, TextSet)
        return data.sizes

    def metrics(self) -> "Mapping[str, Metric]":
        """Bits per byte, and how often the likeliest byte is the right one."""
        from torchmetrics.aggregation import MeanMetric
        from torchmetrics.classification import MulticlassAccuracy

        accuracy = MulticlassAccuracy(TOKENS, average="micro", ignore_index=IGNORE, validate_args=False)
        return {"bits_per_byte": MeanMetric(), "accuracy": accuracy}

    def evaluate(self, model: nn.Module, batch: Batch, metrics: "Mapping[str, Metric]") -> Terms:
        """One forward for the loss and both metrics."""
        logits = model(batch["ids"])
        terms = self._terms(logits, batch)
        loss = terms["cross_entropy"]
        metrics["bits_per_byte"].update(loss.sum / loss.count / math.log(2), loss.count)
        metrics["accuracy"].update(logits.argmax(dim=2), batch["targets"])
        return terms

    def floors(self) -> Mapping[str, float]:
        """What a model reaches that only knows how frequent each byte is."""
        return {"bits_per_byte": 4.78, "accuracy": 0.14}

    def labels(self, batch: Batch) -> Labels:
        """(N, T) bytes, the end, and `IGNORE`."""
        return Labels(batch["targets"], TOKENS, IGNORE)

    def _terms(self, logits: Tensor, batch: Batch) -> Terms:
        # A sum of thousands of losses needs more than the 8 bits of bfloat16.
        rows = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
        total = F.cross_entropy(rows, batch["targets"].flatten(), ignore_index=IGNORE, reduction="sum")
        return {"cross_entropy": Term(total, self.counts(batch)["cross_entropy"])}
