"""N copies of a model stay the same: parameters from the start, buffers where they are read, gradients always."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.config import ParallelConfig
from lockstep.runtime.loss import Term, total_loss
from lockstep.runtime.parallel import replica as module
from lockstep.runtime.parallel.batch_norm import synchronise
from lockstep.runtime.parallel.buffers import broadcasts
from lockstep.runtime.parallel.replica import Replica, _buffers_option
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.parallel.patterns import PATTERNS, problems

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]


class Task(Recipe):
    def __init__(self, returns: Any = None) -> None:
        self.returns = returns

    def model(self) -> nn.Module:
        return nn.Linear(2, 2)

    def train_data(self) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensor) -> Mapping[str, Term]:
        if self.returns is not None:
            return self.returns  # type: ignore[no-any-return]
        return {"loss": Term(model(batch).square().sum(), len(batch))}


class Buffered(nn.Module):
    """BatchNorm and, if asked for, a buffer that the forward reads."""

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(2), nn.Linear(2, 2)
        if read:
            self.register_buffer("scale", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.out(self.norm(x))
        return y * self.scale if hasattr(self, "scale") else y


class Kinds(nn.Module):
    """A buffer of each type, an empty one, a number and a strided one."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 2)
        for i, kind in enumerate(TYPES):
            self.register_buffer(f"b{i}", torch.zeros(3).to(kind))
        self.register_buffer("none", torch.zeros(0))
        self.register_buffer("number", torch.tensor(0.0))
        self.register_buffer("across", torch.zeros(2, 3).t(), persistent=False)


def stepped(replica: Replica, x: Tensor) -> None:
    replica.backward(total_loss(replica.forward(x), {"loss": 4}, replica.world.num_ranks), True)


def numbers(model: nn.Module) -> list[float]:
    return [value for buffer in model.buffers() for value in buffer.detach().double().flatten().tolist()]


def of_buffers(world: World) -> dict[str, Any]:
    """What the buffers are after a step in which every rank saw other data and wrote to its buffer."""
    found: dict[str, Any] = {}
    x = torch.randn(2, 2, generator=torch.Generator().manual_seed(world.rank)) + world.rank
    for choice in ("auto", "on", "off"):
        for read in (False, True):
            torch.manual_seed(0)
            replica = Replica(Buffered(read), Task(), world, ParallelConfig(broadcast_buffers=choice))  # type: ignore[arg-type]
            model: Any = replica.model
            stepped(replica, x)
            if read:
                model.scale.fill_(world.rank + 5.0)
            before = numbers(model)
            stepped(replica, x)
            scale = model.scale.tolist() if read else None
            mean = model.norm.running_mean.tolist()
            replica.sync_buffers()
            found[f"{choice} {read}"] = {"before": before, "scale": scale, "mean": mean, "synced": numbers(model)}
            replica.close()
    return found


def of_kinds(world: World) -> dict[str, Any]:
    replica = Replica(Kinds(), Task(), world, ParallelConfig())
    for buffer in replica.model.buffers():
        buffer.fill_(world.rank + 1)
    replica.model.across[0, 0] = 7  # type: ignore[index, operator]
    kept = [id(buffer) for buffer in replica.model.buffers()]
    replica.sync_buffers()
    same = kept == [id(buffer) for buffer in replica.model.buffers()]
    values = {name: buffer.double().flatten().tolist() for name, buffer in replica.model.named_buffers()}
    replica.close()
    return {"values": values, "in place": same}


def of_start(world: World) -> dict[str, Any]:
    """Ranks that begin with different weights and buffers."""
    torch.manual_seed(world.rank)
    model = Buffered(True)
    model.scale.fill_(world.rank)
    names = list(model.state_dict())
    replica = Replica(model, Task(), world, ParallelConfig())
    found: dict[str, Any] = {
        "weights": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(),
        "buffers": numbers(model),
        "names": list(model.state_dict()) == names,
    }
    stepped(replica, torch.ones(2, 2))
    found["seconds"] = replica.communication_s()
    replica.close()
    return found


def of_mixed_types(world: World) -> list[str]:
    """Weights of three types: gradients are reduced in buckets of their own."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 2).double(), nn.Linear(2, 2), nn.Linear(2, 2).bfloat16()])

    class Each(Task):
        def loss(self, model: nn.Module, batch: Tensor) -> Mapping[str, Term]:
            outputs = [one(batch.to(one.weight.dtype)).double().sum() for one in model]  # type: ignore[attr-defined]
            return {"loss": Term(torch.stack(outputs).sum(), len(batch))}

    replica = Replica(model, Each(), world, ParallelConfig())
    stepped(replica, torch.full((2, 2), world.rank + 1.0))
    expected = sum(2.0 * (rank + 1) for rank in range(world.num_ranks)) / 4
    grads = {name: p.grad for name, p in model.named_parameters() if "weight" in name}
    wrong = [name for name, grad in grads.items() if grad is None or (grad - expected).abs().max() > 1e-2]
    replica.close()
    return wrong


def of_returns(world: World) -> list[str]:
    said = []
    for returned in (torch.ones(()), {}, {"loss": torch.ones(2)}, {"loss": (torch.ones(2), 1)}, {"loss": (1.0, 2)}):
        replica = Replica(nn.Linear(2, 2), Task(returned), world, ParallelConfig())
        try:
            replica.forward(torch.ones(1, 2))
        except UserError as error:
            said.append(str(error))
        replica.close()
    return said


def of_patterns(world: World) -> dict[str, list[str]]:
    """torch's own ways to bear unused parameters."""
    found = {}
    for name in PATTERNS:
        if not name.startswith("nothing"):
            for micro in (1, 3):
                on = ParallelConfig(find_unused="on")
                found[f"on, {name}, {micro}"] = problems(world, PATTERNS[name], micro, on)
    for name in ("everything everywhere", "one branch nowhere"):
        static = ParallelConfig(static_graph=True)
        found[f"static, {name}"] = problems(world, PATTERNS[name], 1, static)
    return found


def everything() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        checks = of_buffers, of_kinds, of_start, of_mixed_types, of_returns, of_patterns
        return {check.__name__: check(world) for check in checks}


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return run_ranks(everything, 2)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("choice", ["auto", "on", "off"])
def test_buffers_are_sent_where_they_are_read(ranks: list[dict[str, Any]], choice: str, read: bool) -> None:
    first, second = (rank["of_buffers"][f"{choice} {read}"] for rank in ranks)
    assert first["before"] != second["before"]
    sent = choice == "on" or (choice == "auto" and read)
    if read:
        assert first["scale"] == [5.0, 5.0]
        assert second["scale"] == ([5.0, 5.0] if sent else [6.0, 6.0])  # as the second forward read it
    assert first["mean"] != second["mean"]  # each rank's statistics are of its own share until they are asked for
    assert first["synced"] == second["synced"]
    assert first["mean"][0] in first["synced"]  # rank 0's


def test_buffers_of_every_type_are_synchronised_in_place(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["of_kinds"] for rank in ranks)
    assert first == second
    assert first["in place"]
    for i in range(len(TYPES)):
        assert first["values"][f"b{i}"] == [1.0, 1.0, 1.0]
    assert first["values"]["across"] == [7.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert (first["values"]["none"], first["values"]["number"]) == ([], [1.0])


def test_ranks_begin_with_the_weights_and_buffers_of_rank_0(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["of_start"] for rank in ranks)
    assert first["weights"] == second["weights"]
    assert first["buffers"] == second["buffers"]
    assert 0.0 in first["buffers"]
    assert first["names"]  # the wrapper leaves no mark on the model
    assert second["names"]
    assert all(value >= 0 for rank in (first, second) for value in rank["seconds"])


def test_weights_of_several_types(ranks: list[dict[str, Any]]) -> None:
    assert [rank["of_mixed_types"] for rank in ranks] == [[], []]


def test_a_loss_of_another_form_is_refused_by_name(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        said = rank["of_returns"]
        assert len(said) == 5
        assert "Task.loss returned Tensor" in said[0]
        assert "Task.loss returned dict" in said[1]
        assert all("'loss'" in text for text in said[2:])
        assert all('{"loss": Term(sum, count)} with a scalar sum' in text for text in said)


def test_torchs_own_search_has_the_gradients_of_one_process(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert not {name: lines for name, lines in rank["of_patterns"].items() if lines}


@pytest.mark.parametrize(
    ("model", "read"),
    [
        (nn.Linear(2, 2), False),
        (nn.BatchNorm1d(2), False),
        (nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True)), False),
        (synchronise(nn.Sequential(nn.BatchNorm1d(2)), torch.device("cpu")), False),
        (Buffered(False), False),
        (Buffered(True), True),
        (Kinds(), True),
    ],
)
def test_running_statistics_are_the_only_buffers_that_can_wait(model: nn.Module, read: bool) -> None:
    assert broadcasts(model, "auto") is read
    assert broadcasts(model, "on")
    assert not broadcasts(model, "off")


@pytest.mark.parametrize("name", ["broadcast_buffers", "forward_sync_buffers"])
def test_the_option_has_the_name_that_torch_knows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    class Wrapper:
        exec(f"def __init__(self, module, {name}=True): pass")

    monkeypatch.setattr(module, "DistributedDataParallel", Wrapper)
    assert _buffers_option(False) == {name: False}
