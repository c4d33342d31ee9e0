"""Right: the learning rate follows the global batch by a declared rule, linear from a reference batch.

By default the global batch is given, so the rate does not depend on the number of ranks. With `--batch-per-rank` the
global batch grows with the ranks and the rate grows with it, as declared: that cannot be mirrored.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(length: int = 48) -> TensorDataset:
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(length, 6, generator=draw)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=draw)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--batch-per-rank", type=int, default=0, help="0: the global batch divided by the ranks")
    parser.add_argument("--reference-batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.2, help="at the reference batch")
    return parser.parse_args()


def train(rank: int, num_ranks: int) -> None:
    args = parse()
    batch = args.batch_per_rank or args.global_batch // num_ranks
    lr = args.lr * batch * num_ranks / args.reference_batch
    dataset = make_data()
    sampler = DistributedSampler(dataset, num_ranks, rank)
    loader = DataLoader(dataset, batch, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    if rank == 0:
        print(f"global batch {batch * num_ranks} = {batch} per rank x {num_ranks} ranks, lr {lr:g}")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs), targets)
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
