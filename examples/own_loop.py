"""Your own loop: model, optimizer, DDP wrap and steps are plain PyTorch; Lockstep gives what must be right at every N.

    python examples/own_loop.py
    torchrun --nproc-per-node 2 examples/own_loop.py
    torchrun --nproc-per-node 2 examples/own_loop.py --resume --epochs 5

Each gives the same losses. What comes from Lockstep: who am I (World), which samples are mine (TrainLoader), the loss
over all ranks (CountSum, total_loss), the metric (MergedMetric), and a state that survives (State, Saver).
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, Subset
from torchmetrics.classification import MulticlassAccuracy

import lockstep.runtime as ls

READING = ls.Reading(seed=0)  # worker processes, prefetch, and the seed of the order and of the augmentation


class Digits(Dataset):
    """1797 handwritten digits of 8 x 8 pixels; with noise in training, as an augmentation."""

    def __init__(self, noise: float = 0.0):
        images, labels = load_digits(return_X_y=True)
        self.images, self.labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
        self.noise = noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        return image + self.noise * torch.randn_like(image), self.labels[index]


def train(world: ls.World, folder: Path, epochs: int, max_steps: int | None, resume: bool):
    """The loop."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(world.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = ls.TrainLoader(Subset(Digits(noise=0.1), range(1437)), ls.Batching(), READING, world, global_batch=64)
    state, position = ls.State(model, optimizer), ls.Position()
    saver = ls.Saver(folder, ls.CheckpointConfig(keep_last=2), {"num_ranks": world.num_ranks}, world.is_main)
    if resume:
        position = state.restore(ls.find_checkpoint(folder, world))
    wrapped = DistributedDataParallel(model)

    while position.epoch < epochs and position.step != max_steps:
        for images, labels in loader.epoch(position.epoch, position.consumed):
            images, labels = images.to(world.device), labels.to(world.device)
            ls.seed_rank_step(READING.seed, world.rank, position.step)  # dropout: another draw on every rank
            counts = ls.CountSum({"loss": len(labels)}, world)  # on its way while the forward runs
            term = ls.Term(F.cross_entropy(wrapped(images), labels, reduction="sum"), len(labels))
            totals = counts.wait()
            optimizer.zero_grad()
            ls.total_loss({"loss": term}, totals, world.num_ranks).backward()
            optimizer.step()
            position = position.after_step(int(totals["loss"]), updated=True)
            if position.step % 10 == 0:
                loss = world.sum(term.sum.detach().double()) / totals["loss"]  # of all ranks
                if world.is_main:
                    print(f"step {position.step:3}: loss {loss:.6f}")
            if position.step % 25 == 0:
                saver.save(state, position)
            if position.step == max_steps:
                break
        else:
            position = position.after_epoch()
            accuracy = evaluate(model, world)
            if world.is_main:
                print(f"epoch {position.epoch}: accuracy {accuracy:.6f}")
    saver.save(state, position)
    saver.close(ending_well=True)


@torch.no_grad()
def evaluate(model: nn.Module, world: ls.World) -> float:
    """The accuracy on the other 360 digits: whole batches are dealt to the ranks, nothing is padded."""
    metric = ls.MergedMetric("accuracy", MulticlassAccuracy(10, average="micro").to(world.device))
    sampler, batches = ls.eval_loader(Subset(Digits(), range(1437, 1797)), ls.Batching(), READING, world, batch=50)
    model.eval()
    for number, (images, labels) in zip(sampler.batches, batches, strict=True):
        metric.metric.update(model(images.to(world.device)), labels.to(world.device))
        metric.take(number)
    model.train()
    return metric.compute(world)["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("runs/own_loop"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    with ls.World.enter() as world:
        train(world, args.folder, args.epochs, args.max_steps, args.resume)
