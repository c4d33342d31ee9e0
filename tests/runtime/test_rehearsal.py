"""The rehearsal settles what must be settled before step 0 and leaves no other trace."""

import logging
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.loss import Term
from lockstep.runtime.rehearsal import check_counts, check_graph
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.regression import NAN, Host, Regression, session_of


class Rich(Regression):
    """BatchNorm, dropout, a buffer that counts forwards, a branch that nobody takes, one that rank 0 alone takes."""

    def model(self) -> nn.Module:
        return Net()

    def loss(self, model: nn.Module, batch: Host) -> Any:
        random.random()
        np.random.rand()
        return super().loss(model, batch)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.layers = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
        self.out, self.never, self.side = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(1))
        self.rank0 = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1  # as users write it: another tensor
        h = self.layers(self.drop(self.norm(x)))
        return self.out(h) + (self.side(h) if self.rank0 else 0)


class RankNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.rank0 = torch.distributed.get_rank() == 0


class Ranked(Rich):
    def model(self) -> nn.Module:
        return RankNet()


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def states() -> list[Any]:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]


def settled(options: list[str], bad: dict[int, int]) -> dict[str, Any]:
    lines, log = Lines(), logging.getLogger("lockstep")
    with World.enter(threads=1) as world:
        log.addHandler(lines)
        log.setLevel(logging.INFO)
        before = states()
        session = session_of(Ranked(bad=bad), world, *options)
        model: Any = session.model
        weights = [p.detach().clone() for p in model.parameters()]
        assert session.replica.ddp is not None
        found = {
            "random": states() == before,
            "buffers": [model.calls.tolist(), model.norm.running_mean.tolist(), int(model.norm.num_batches_tracked)],
            "gradients": [name for name, p in model.named_parameters() if p.grad is not None],
            "optimizer": len(session.state.optimizer.state),
            "finite": all(bool(p.isfinite().all()) for p in weights),
            "weights": torch.cat([p.flatten() for p in weights]).tolist(),
            # The next forward lays the buckets out anew, in the order in which the gradients came.
            "rebuilt": session.replica.ddp.reducer._rebuild_buckets(),
            "said": [line for line in lines.lines if "without a gradient" in line],
        }
        log.removeHandler(lines)
        session.replica.close()
        return found


@pytest.mark.parametrize(("options", "bad"), [([], {}), (["precision=fp16", "batch.accumulation=2"], {0: NAN, 1: NAN})])
def test_no_trace_is_left_but_the_settled_buckets(options: list[str], bad: dict[int, int]) -> None:
    ranks = run_ranks(settled, 2, options, bad)
    for rank, found in enumerate(ranks):
        assert found["random"]
        assert found["buffers"] == [[0.0], [0.0, 0.0, 0.0], 0]
        assert found["gradients"] == []
        assert found["optimizer"] == 0
        assert found["finite"]
        assert found["weights"] == ranks[0]["weights"]
        assert found["rebuilt"]
        line = "parameters without a gradient on some rank, completed with zeros: "
        assert found["said"] == ([] if rank else [line + "never.bias, never.weight, side.bias, side.weight"])


class Promises(Regression):
    """Its counts(batch) is not what its loss returns."""

    def counts(self, batch: Host) -> Any:
        return {"squares": len(batch["x"]) + 1}


class Detached(Regression):
    def loss(self, model: nn.Module, batch: Host) -> Any:
        return {name: term._replace(sum=term.sum.detach()) for name, term in super().loss(model, batch).items()}


def refused() -> list[str]:
    said = []
    with World.enter(threads=1) as world:
        for recipe in (Promises(), Detached()):
            try:
                session_of(recipe, world)
            except UserError as error:
                said.append(str(error))
    return said


def test_a_loss_that_cannot_be_is_refused_before_the_first_step() -> None:
    for promises, detached in run_ranks(refused, 1):
        assert "counts(batch) says {'squares': 13.0}, loss(model, batch) returned counts {'squares': 12.0}" in promises
        assert "mend counts, or leave it out" in promises
        assert "the loss (squares) does not depend on any trainable parameter" in detached
        assert "without detach() or no_grad()" in detached


def terms(**counts: Any) -> dict[str, Term]:
    return {name: Term(torch.ones(()), count) for name, count in counts.items()}


def test_counts_are_compared_by_name_and_up_to_rounding() -> None:
    check_counts(None, terms(a=1))
    check_counts({"a": 3, "b": torch.tensor(0)}, terms(a=torch.tensor(3.0), b=0))
    check_counts({"a": 0.1 + 0.2}, terms(a=torch.tensor(0.3)))  # the same sum in another type
    check_counts({"a": 1e7 + 1}, terms(a=torch.tensor(1e7 + 2)))


@pytest.mark.parametrize(
    "wrong",
    [{"a": 3}, {"a": 3, "b": 1, "c": 1}, {"a": 3, "c": 1}, {"a": 3, "b": 2}, {"a": 3, "b": 1.01}, {"a": 0, "b": 1}],
)
def test_counts_that_differ_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="the same names and numbers"):
        check_counts(wrong, terms(a=3, b=1))


def test_a_constant_loss_is_fine_where_nothing_counts() -> None:
    check_graph(torch.zeros(()), {"a": 0.0, "b": 0.0})
    check_graph(torch.zeros((), requires_grad=True), {"a": 1.0})
    with pytest.raises(UserError, match="does not depend"):
        check_graph(torch.zeros(()), {"a": 0.0, "b": 2.0})
