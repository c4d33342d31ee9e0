"""A plain PyTorch training, `victim.py FAULT`; one rank of it does the fault after some steps."""

import sys
import time

import deeds
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

Batches = DataLoader[dict[str, torch.Tensor]]
TURNS = {
    "breaks": "break",
    "breaks_to_a_barrier": "break",
    "swallows": "continue",
    "skips_a_step": "skip",
    "launcher": "",
}

fault = sys.argv[1]


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    in_worker = fault in deeds.IN_WORKER
    points = 4000
    if fault == "unequal":
        points = 10 * deeds.BATCH * dist.get_world_size()
    data = deeds.Data(points, fault=fault if in_worker else "", at=deeds.STEP * deeds.BATCH)
    sampler: torch.utils.data.Sampler[int] = DistributedSampler(data)
    if fault == "unequal":
        left_out = 2 * deeds.BATCH * dist.get_world_size() * deeds.at_fault()
        share = range(dist.get_rank(), points - left_out, dist.get_world_size())
        sampler = torch.utils.data.SequentialSampler(share)
    loader = DataLoader(data, deeds.BATCH, sampler=sampler, num_workers=int(in_worker))
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, loader)
    if fault == "unequal" and deeds.at_fault():
        deeds.say()
    evaluate(model, loader)
    dist.destroy_process_group()


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Batches) -> None:
    for step, batch in enumerate(loader):
        time.sleep(0.02)
        if fault == "evaluates_for_ever" and step == deeds.STEP:
            return
        turn = misbehave() if step == deeds.STEP else ""
        if turn == "break":
            break
        if turn == "continue":
            continue
        optimizer.zero_grad()
        mse_loss(model(batch["point"]), batch["label"]).backward()  # <- backward
        if turn != "skip":
            optimizer.step()


def misbehave() -> str:
    """Do the fault. Returns what the loop does then."""
    if fault in deeds.TOGETHER:
        deeds.together(fault)
    if not deeds.at_fault():
        return ""
    if fault in deeds.IN_LOOP:
        deeds.strike(fault)
    if fault not in TURNS:
        return ""
    deeds.say()
    try:
        raise ValueError("a sample that cannot be read")
    except ValueError:
        return TURNS[fault]


@torch.no_grad()
def evaluate(model: torch.nn.Module, loader: Batches) -> None:
    model.eval()
    if fault == "evaluates_for_ever" and deeds.at_fault():
        deeds.strike(fault)
    if fault in ("breaks_to_a_barrier", "evaluates_for_ever"):
        dist.barrier()  # <- barrier


if __name__ == "__main__":
    main()
