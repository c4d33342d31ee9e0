"""Trainings that break a rule about gradients, or seem to: the command line names the one that is run."""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Loss = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """Two layers, and a third that can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.side = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor, side: bool = True) -> Tensor:
        features = self.body(x).relu()
        return self.head(features) + self.side(features) if side else self.head(features)


class TwoOutputs(Net):
    """The layers give two outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        features = self.body(x).relu()
        return self.head(features), self.side(features)


def batches() -> Iterator[tuple[int, Tensor, Tensor]]:
    """Two epochs of this rank's share, six batches each."""
    points = torch.randn(48, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(points, points.abs().argmax(1) % 3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            yield number, x, y


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.05)


def usual(optimizer: torch.optim.Optimizer, loss: Loss) -> None:
    for _, x, y in batches():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()


def accumulated(synced: Callable[[int], bool], backward_inside: bool = True) -> None:
    """Four micro-batches a step; six a epoch."""
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for number, x, y in batches():
        with contextlib.nullcontext() if synced(number) else net.no_sync():
            loss = cross_entropy(net(x), y) / 4
            if backward_inside:
                loss.backward()
        if not backward_inside:
            loss.backward()
        if number in (3, 5):
            optimizer.step()
            optimizer.zero_grad()


def part_called() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    net = DistributedDataParallel(model)
    usual(sgd(model), lambda x, y: cross_entropy(net.module[1](net.module[0](x)), y))


def inner_after_evaluation() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for _, x, y in batches():
        with torch.no_grad():
            net(x)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def right_inner_after_wrapper() -> None:
    model = Net()
    net = DistributedDataParallel(model)
    usual(sgd(model), lambda x, y: cross_entropy(model(x) + 0 * net(x).sum().detach(), y))


def copy_reduced() -> None:
    model = Net()
    optimizer = sgd(model)
    for _, x, y in batches():
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.clone())  # type: ignore[union-attr]
        optimizer.step()


def group_of_one() -> None:
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = Net()
    net = DistributedDataParallel(model, process_group=groups[dist.get_rank()])
    usual(sgd(model), lambda x, y: cross_entropy(net(x), y))


def left_over() -> None:
    accumulated(lambda number: number == 3)


def right_left_over() -> None:
    accumulated(lambda number: number in (3, 5))


def no_sync_around_forward() -> None:
    accumulated(lambda number: False, backward_inside=False)


def two_forwards_two_backwards() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for _, x, y in batches():
        optimizer.zero_grad()
        losses = cross_entropy(net(x), y), net(-x).square().mean()
        for loss in losses:
            loss.backward()
        optimizer.step()


def refused() -> None:
    model = TwoOutputs()
    net = DistributedDataParallel(model)
    for _, x, y in batches():
        first, second = net(x)
        cross_entropy(first, y).backward(retain_graph=True)
        second.square().mean().backward()


def branch_by_rank() -> None:
    model = Net()
    net = DistributedDataParallel(model)
    usual(sgd(model), lambda x, y: cross_entropy(net(x, dist.get_rank() == 0), y))


def swallowed() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for _, x, y in batches():
        with contextlib.suppress(RuntimeError):
            optimizer.zero_grad()
            cross_entropy(net(x, False), y).backward()
            optimizer.step()


def right_static_graph() -> None:
    model = Net()
    net = DistributedDataParallel(model, static_graph=True)
    usual(sgd(model), lambda x, y: cross_entropy(net(x, False), y))


def added() -> None:
    model = nn.Sequential(nn.Linear(6, 3))
    net = DistributedDataParallel(model)
    model.append(nn.Linear(3, 3))
    usual(sgd(model), lambda x, y: cross_entropy(net(x), y))


def replaced(find_unused: bool = False) -> None:
    model = Net()
    net = DistributedDataParallel(model, find_unused_parameters=find_unused)
    model.head = nn.Linear(8, 3)
    usual(sgd(model), lambda x, y: cross_entropy(net(x), y))


def replaced_and_advised() -> None:
    replaced(find_unused=True)


def cast() -> None:
    model = Net()
    net = DistributedDataParallel(model).double()
    usual(sgd(model), lambda x, y: cross_entropy(net(x.double()), y))


def second_network() -> None:
    model, rest = nn.Linear(6, 8), nn.Linear(8, 3)
    net = DistributedDataParallel(model)
    usual(sgd(model, rest), lambda x, y: cross_entropy(rest(net(x)), y))


def penalty() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for _, x, y in batches():
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        more = torch.autograd.grad(net(-x).square().mean(), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), more, strict=True):
            parameter.grad += gradient
        optimizer.step()


def copied() -> None:
    model = Net()
    optimizer = sgd(model)
    net = DistributedDataParallel(copy.deepcopy(model))
    usual(optimizer, lambda x, y: cross_entropy(net(x), y))


def noise_by_rank() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), sgd(model)
    for _, x, y in batches():
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        for parameter in model.parameters():
            parameter.grad += 0.01 * dist.get_rank()
        optimizer.step()


def adversarial(inner: bool = False, bypassed: bool = False) -> None:
    maker, critic = nn.Linear(6, 6), nn.Linear(6, 1)
    making, judging = DistributedDataParallel(maker), DistributedDataParallel(critic)
    of_maker, of_critic = sgd(maker), sgd(critic)
    for _, x, _ in batches():
        fake = (maker if bypassed else making)(x.flip(0))
        of_critic.zero_grad()
        (judging(x) - judging(fake.detach())).square().mean().backward()
        of_critic.step()
        of_maker.zero_grad()
        (critic if inner else judging)(fake).square().mean().backward()
        of_maker.step()


def right_adversarial() -> None:
    adversarial()


def right_adversarial_inner() -> None:
    adversarial(inner=True)


def adversarial_bypassed() -> None:
    adversarial(bypassed=True)


def right_closure() -> None:
    model = Net()
    net, optimizer = DistributedDataParallel(model), torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    for _, x, y in batches():

        def loss(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            value = cross_entropy(net(x), y)
            value.backward()
            return value

        optimizer.step(loss)  # type: ignore[arg-type]


def right_shards() -> None:
    model = Net()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    usual(sgd(model), lambda x, y: cross_entropy(model(x), y))


if __name__ == "__main__":
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
