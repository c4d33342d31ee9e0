"""Small recipes for the runtime's tests, and a way to run them that gives back what was logged."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassJaccardIndex

from lockstep.runtime.config import load_config
from lockstep.runtime.loss import Count, Term, masked_term
from lockstep.runtime.recipe import Labels, Recipe
from lockstep.runtime.training import fit
from lockstep.runtime.world import World

IGNORE = 255


class Images(Dataset[dict[str, Tensor]]):
    """Images (3, 8, 8) with per-pixel labels of two classes; how many are ignored differs between samples."""

    def __init__(self, length: int, noise: float = 0.0) -> None:
        self.length, self.noise = length, noise

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, 8, 8, generator=generator, dtype=torch.float32)
        label = (image.sum(0) > 0).long()
        label[image[0] > 2.0 - (index % 5)] = IGNORE
        return {"image": image + self.noise * torch.randn(3, 8, 8, dtype=torch.float32), "label": label}


class Stream(IterableDataset[dict[str, Tensor]]):
    def __init__(self, length: int) -> None:
        self.images = Images(length, noise=0.1)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self.images[i] for i in range(len(self.images)))


class StatefulStream(Stream):
    """Knows by itself where it stands; writes a byte for each item that it reads."""

    def __init__(self, length: int, reads: str | None = None) -> None:
        super().__init__(length)
        self.reads, self.next = reads, 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        while self.next < len(self.images):
            self.next += 1
            if self.reads is not None:
                with Path(self.reads).open("ab") as file:
                    file.write(b".")
            yield self.images[self.next - 1]
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.next = state_dict["next"]


class Block(nn.Module):
    """A residual block; what is sharded, recomputed or compiled by itself."""

    def __init__(self, batchnorm: bool, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)
        self.norm = nn.BatchNorm2d(6) if batchnorm else nn.Identity()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.drop(F.gelu(self.norm(self.first(x)))))


class Net(nn.Module):
    def __init__(self, batchnorm: bool, branches: bool, dropout: float, depth: int = 0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6) if batchnorm else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.left, self.right = (nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 1)) if branches else (None, None)
        self.blocks = nn.ModuleList(Block(batchnorm, dropout) for _ in range(depth))
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(F.gelu(self.norm(self.stem(x))))
        if self.left is not None and self.right is not None:
            # A branch that only some samples take: on a small share of a batch one of them may be unused.
            side = x.mean((1, 2, 3)) > 0.05
            h = h.clone()
            for chosen, branch in ((side, self.left), (~side, self.right)):
                if chosen.any():
                    h[chosen] = h[chosen] + branch(h[chosen])
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class Segment(Recipe):
    def __init__(
        self,
        length: int = 52,
        batchnorm: bool = False,
        branches: bool = False,
        dropout: float = 0.0,
        terms: int = 1,
        early: bool = True,
        stream: bool = False,
        val: int = 0,
        noise: float = 0.0,
        poison: int = -1,
        depth: int = 0,
        reads: str | None = None,
    ) -> None:
        self.depth, self.reads = depth, reads
        self.length, self.batchnorm, self.branches, self.dropout = length, batchnorm, branches, dropout
        self.terms, self.early, self.stream, self.val, self.noise, self.poison = (
            terms,
            early,
            stream,
            val,
            noise,
            poison,
        )

    def model(self) -> nn.Module:
        return Net(self.batchnorm, self.branches, self.dropout, self.depth)

    def train_data(self) -> Dataset[Any]:
        if self.reads is not None:
            return StatefulStream(self.length, self.reads)
        return Stream(self.length) if self.stream else Images(self.length, self.noise)

    def sizes(self, data: Dataset[Any]) -> list[int]:
        return [int((data[index]["label"] != IGNORE).sum()) for index in range(self.length)]

    def val_data(self) -> Dataset[Any] | None:
        return Images(self.val) if self.val else None

    def counts(self, batch: Any) -> Mapping[str, Count] | None:
        valid = (batch["label"] != IGNORE).sum()
        counts = {"ce": valid, "positive": (batch["label"] == 1).sum()}
        return dict(list(counts.items())[: self.terms]) if self.early else None

    def loss(self, model: nn.Module, batch: Any) -> Mapping[str, Term]:
        logits, label = model(batch["image"]), batch["label"]
        each = F.cross_entropy(logits, label, ignore_index=IGNORE, reduction="none")
        terms = {"ce": masked_term(each, label != IGNORE), "positive": masked_term(each, label == 1, weight=0.5)}
        return dict(list(terms.items())[: self.terms])

    def metrics(self) -> Mapping[str, Metric]:
        return {"miou": MulticlassJaccardIndex(2, ignore_index=IGNORE)}

    def evaluate(self, model: nn.Module, batch: Any, metrics: Mapping[str, Metric]) -> Mapping[str, Term]:
        logits = model(batch["image"])
        metrics["miou"].update(logits.argmax(1), batch["label"])
        each = F.cross_entropy(logits, batch["label"], ignore_index=IGNORE, reduction="none")
        return {"ce": masked_term(each, batch["label"] != IGNORE)}

    def labels(self, batch: Any) -> Labels:
        return Labels(batch["label"], 2, IGNORE)


def config_of(*overrides: str) -> Any:
    return load_config(None, ["recipe=tests/runtime/tasks.py:Segment", "log.tensorboard=off", *overrides])


def run(
    world: World, folder: Path, options: dict[str, Any], overrides: list[str], resume: bool = False
) -> dict[str, Any]:
    """Train on a world; what was logged, by step, and the last evaluation."""
    config = config_of("log.every_steps=1", *overrides)
    summary = fit(Segment(**options), config, world, folder, resume)
    world.barrier()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    averages = sorted(folder.glob("checkpoints/step-*/ema.safetensors"))
    ema = [value for t in load_file(averages[-1]).values() for value in t.flatten().tolist()] if averages else []
    return {
        "ema": ema,
        "loss": [r["loss"] for r in steps],
        "norm": [r["grad_norm"] for r in steps],
        "results": summary.results,
    }
