"""Right trainings that take their time: `healthy.py KIND`. None of them may be called stuck."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LONG_S = 6.0
"""More than a stall in training may take before it is reported."""
Step = Callable[[Tensor, Tensor], None]


class Slow(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Points that take their time; the first one of a worker takes longer."""

    def __init__(self, seconds: float, first_s: float = 0.0) -> None:
        self.seconds, self.first_s, self.begun = seconds, first_s, False

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.seconds if self.begun else self.first_s + self.seconds)
        self.begun = True
        return torch.full((8,), float(index % 7)), torch.ones(1)


def data(num_points: int = 2000) -> TensorDataset:
    points = torch.randn(num_points, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(points, points.sum(1, keepdim=True))


def loader(source: Any = None, **options: Any) -> DataLoader[Any]:
    source = data() if source is None else source
    return DataLoader(source, 10, sampler=DistributedSampler(source, shuffle=False), **options)


def wrapped(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Linear(8, 1) if model is None else model, **options)


def train(model: nn.Module, batches: Any, steps: int = 30, lr: float = 0.01) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step, (x, y) in enumerate(batches):
        if step == steps:
            break
        time.sleep(0.01)
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()


def slow_first_step() -> None:
    model = wrapped()
    time.sleep(LONG_S)
    train(model, loader())


class SlowAtFirst(nn.Module):
    """As one that is compiled at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.called = nn.Linear(8, 1), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.called:
            time.sleep(LONG_S + 2 * dist.get_rank())
        self.called = True
        return self.inner(x)  # type: ignore[no-any-return]


def slow_first_forward() -> None:
    train(wrapped(SlowAtFirst()), loader())


def long_evaluation_everywhere() -> None:
    model = wrapped()
    train(model, loader())
    model.eval()
    with torch.no_grad():
        for _, (x, _) in zip(range(6), loader(), strict=False):
            model.module(x)
            time.sleep(LONG_S / 4)
    train(model, loader())


def long_evaluation_on_rank_0() -> None:
    model = wrapped()
    train(model, loader())
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            for _, (x, _) in zip(range(6), DataLoader(data(), 10), strict=False):
                model.module(x)
                time.sleep(LONG_S / 4)
    dist.barrier()
    train(model, loader())


def long_plain_evaluation_on_rank_0() -> None:
    model = wrapped()
    train(model, loader())
    if dist.get_rank() == 0:
        model.eval()
        time.sleep(LONG_S)
    dist.barrier()
    train(model, loader())


class SlowFile:
    """A disk at the other end of a long line."""

    def __init__(self) -> None:
        self.left = 4

    def write(self, written: bytes) -> int:
        if self.left:
            time.sleep(LONG_S / 4)
            self.left -= 1
        return len(written)

    def flush(self) -> None:
        pass


def long_save() -> None:
    model = wrapped()
    train(model, loader())
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), SlowFile())  # type: ignore[arg-type]
    dist.barrier()
    train(model, loader())


def slow_workers() -> None:
    train(wrapped(), loader(Slow(0.0, 3.0), num_workers=1, multiprocessing_context="spawn"))


def two_optimizers() -> None:
    generator, critic = wrapped(nn.Linear(8, 8)), wrapped(nn.Linear(8, 1))
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for step, (x, _) in enumerate(loader()):
        if step == 30:
            break
        made = generator(torch.randn_like(x))
        of_critic.zero_grad()
        (critic(made.detach()).mean() - critic(x).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        (-critic.module(made).mean()).backward()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        of_generator.step()


def accumulation() -> None:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(loader()):
        last = step % 4 == 3
        with nullcontext() if last else model.no_sync():
            (mse_loss(model(x), y) / 4).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def joined() -> None:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with model.join():
        for _ in range(20 + 10 * dist.get_rank()):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).mean().backward()
            optimizer.step()


class TwoBranches(nn.Module):
    """Each step uses one branch, another on every rank."""

    def __init__(self) -> None:
        super().__init__()
        self.branches, self.calls = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)]), dist.get_rank()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.branches[self.calls % 2](x)  # type: ignore[no-any-return]


def unused_parameters() -> None:
    train(wrapped(TwoBranches(), find_unused_parameters=True), loader())


def batchnorm() -> None:
    model = wrapped(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    train(model, loader())
    model.eval()
    with torch.no_grad():
        model.module(torch.zeros(4, 8))
    train(model, loader())


def several_groups() -> None:
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    everyone = dist.new_group()
    model = wrapped()
    for _ in range(5):
        train(model, loader(), steps=5)
        dist.all_reduce(torch.zeros(1 + dist.get_rank()), group=alone[dist.get_rank()])
        dist.all_reduce(torch.zeros(3), group=everyone)


def pipeline() -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    for _ in range(30):
        time.sleep(0.01)
        x = torch.randn(4, 8)
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_(True)
        out = stage(x)
        optimizer.zero_grad()
        if rank < last:
            dist.send(out.detach(), rank + 1)
            gradient = torch.empty(4, 8)
            dist.recv(gradient, rank + 1)
            out.backward(gradient)
        else:
            out.square().mean().backward()
        if rank > 0:
            assert x.grad is not None
            dist.send(x.grad, rank - 1)
        optimizer.step()


def objects() -> None:
    model = wrapped()
    for number in range(5):
        train(model, loader(), steps=5)
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, ["x" * 1000] * (dist.get_rank() * 5 + number))
        assert [len(one) for one in found] == [rank * 5 + number for rank in range(len(found))]


def spawned(rank: int) -> None:
    # torchrun's variables make both children clients of a tcp:// store.
    store = Path(os.environ["FILE_OF_THE_STORE"]).as_uri()
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    train(wrapped(), loader())
    time.sleep(2)
    dist.destroy_process_group()


def spawns_its_own() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FILE_OF_THE_STORE"] = str(Path(folder, "store"))
        torch.multiprocessing.spawn(spawned, nprocs=2)


def no_group() -> None:
    train(nn.Linear(8, 1), DataLoader(data(), 10))


def speaks_on_rank_0() -> None:
    for _ in range(3):
        train(wrapped(), loader(), steps=5)
        if dist.get_rank() == 0:
            for number in range(200):
                print("loss", number)
            time.sleep(1)


def closure() -> None:
    model = wrapped()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for step, (x, y) in enumerate(loader()):
        if step == 10:
            break

        def again(x: Tensor = x, y: Tensor = y) -> float:
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            mean = loss.detach()
            dist.all_reduce(mean)
            return float(mean / dist.get_world_size())

        optimizer.step(again)


def agreed_stop() -> None:
    model = wrapped()
    for number in range(100):
        train(model, loader(), steps=5)
        stop = torch.tensor(float(number == 3 and dist.get_rank() == 1))
        dist.all_reduce(stop)
        if stop:
            break


def uneven_paces() -> None:
    """Now one rank is late, now the other: nobody is a straggler."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(loader()):
        if step == 40:
            break
        if step % 2 == dist.get_rank() % 2:
            time.sleep(0.08)
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()


def slow_data() -> None:
    """Not healthy, but no more than slow."""
    train(wrapped(), loader(Slow(0.015)), steps=30)


def straggler() -> None:
    """The same: one rank is always late."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(loader()):
        if step == 40:
            break
        if dist.get_rank() == 1:
            time.sleep(0.1)
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()


ALONE = ("spawns_its_own", "no_group")
"""Without a process group of the launch."""
SLOW = ("slow_data", "straggler")
KINDS = [
    "slow_first_step",
    "slow_first_forward",
    "long_evaluation_everywhere",
    "long_evaluation_on_rank_0",
    "long_plain_evaluation_on_rank_0",
    "long_save",
    "slow_workers",
    "two_optimizers",
    "accumulation",
    "joined",
    "unused_parameters",
    "batchnorm",
    "several_groups",
    "pipeline",
    "objects",
    "spawns_its_own",
    "no_group",
    "speaks_on_rank_0",
    "closure",
    "agreed_stop",
    "uneven_paces",
]


@contextmanager
def group() -> Iterator[None]:
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()


if __name__ == "__main__":
    kind = sys.argv[1]
    with nullcontext() if kind in ALONE else group():
        globals()[kind]()
    print("well", os.environ["RANK"])
