"""Right: the data decide which branches a batch uses, so `find_unused_parameters` is on.

The loss is a mean over samples whatever their kind: a share without a kind gives that branch no gradient, and the mean
over ranks is still the gradient of the whole batch.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(6, 16)
        self.branches = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def forward(self, inputs: Tensor, kinds: Tensor) -> Tensor:
        hidden = torch.tanh(self.trunk(inputs))
        outputs = hidden.new_zeros(len(inputs), 1)
        for kind, branch in enumerate(self.branches):
            if (kinds == kind).any():
                outputs[kinds == kind] = branch(hidden[kinds == kind])
        return outputs


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    kinds = (torch.rand(length, generator=draw) < 0.2).long()
    return TensorDataset(inputs, kinds, inputs.sum(dim=1, keepdim=True) * (1 - 2 * kinds[:, None]))


def train(rank: int, num_ranks: int) -> None:
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    torch.manual_seed(0)
    model = Branches()
    if dist.is_initialized():
        model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, kinds, targets in loader:
            loss = F.mse_loss(model(inputs, kinds), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: last loss of rank 0 {loss.item():.4f}")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
