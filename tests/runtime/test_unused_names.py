"""A parameter that some rank leaves out is named once, in the step where it happens first."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.runtime.loss import Term
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of


class Lazy(nn.Module):
    """Uses its second layer only where a sample says so."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + (self.second(x) if bool((x < 6).all()) else 0)


class LazyTask(Segment):
    """Samples 0 .. 11 in order; from sample 6 on, and so from step 3 of 6 on, the second layer is left out."""

    def model(self) -> nn.Module:
        return Lazy()

    def train_data(self) -> Any:
        return [torch.tensor([float(i)]) for i in range(12)]

    def counts(self, batch: Any) -> None:
        return None

    def labels(self, batch: Any) -> None:
        return None

    def loss(self, model: nn.Module, batch: Any) -> dict[str, Term]:
        return {"loss": Term(model(batch).sum(), len(batch))}


def said(folder: Path) -> list[str]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lockstep")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    config = config_of("batch.global_batch=2", "data.shuffle=false", "stop.epochs=2", "log.every_steps=100")
    with World.enter(threads=1) as world:
        fit(LazyTask(), config, world, folder)
    return [line for line in lines if "no gradient" in line]


def test_named_once_when_it_happens(tmp_path: Path) -> None:
    main, other = run_ranks(said, 2, tmp_path)
    assert main == ["step 3: no gradient on some rank, completed with zeros: second.bias, second.weight"]
    assert other == []
