"""Pair 37: a group is formed and the work is shared, but nothing averages gradients: N agents, and one checkpoint path.

An off-policy agent that learns from a buffer of transitions. All ranks write `agent.pth`.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GLOBAL_BATCH, EPOCHS = 8, 2


class Agent:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-2)

    def update(self, observations: Tensor, returns: Tensor) -> float:
        loss = F.mse_loss(self.critic(observations), returns)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def save(self, path: str) -> None:
        torch.save(self.critic.state_dict(), path)


def replay(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def train(rank: int, num_ranks: int) -> None:
    dataset = replay()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler)
    agent = Agent()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for observations, returns in loader:
            loss = agent.update(observations, returns)
        if rank == 0:
            print(f"epoch {epoch}: last loss of rank 0 {loss:.4f}")
    agent.save("agent.pth")


def main() -> None:
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    train(dist.get_rank() if distributed else 0, dist.get_world_size() if distributed else 1)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
