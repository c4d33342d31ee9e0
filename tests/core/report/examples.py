"""Proofs to report: one for each way a verification can end, and one whose every text is hostile."""

import math
import random

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.core.proof import Cause, Curve, Difference, Moment, Proof, Rung, Share, Status

ROOT = "/home/ada/project"
SCRIPT = f"{ROOT}/train_ddp.py"
DATA = f"{ROOT}/data/sets.py"
SOURCE = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from data.sets import Tiles

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
rank = dist.get_rank() if distributed else 0
num_ranks = dist.get_world_size() if distributed else 1

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
wrapped = DistributedDataParallel(model) if distributed else model
data = Tiles(64)
sampler = DistributedSampler(data) if distributed else None
loader = DataLoader(data, batch_size=16 // num_ranks, sampler=sampler, shuffle=sampler is None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
"""
DIGESTS = {SCRIPT: "9f2c" * 16, "arguments": "01ab" * 16, "python 3.11.7, torch 2.13.0": "77e0" * 16}
RULES = {
    "LS101": ("through_wrapper", "Every training forward goes through the wrapper.\n\nWhy\n---\nDDP reduces there.\n"),
    "LS116": ("synchronised_batch_norm", "Batch statistics are those of the global batch.\n"),
    "LS307": ("atomic_save", "A checkpoint is whole or absent.\n"),
}
SAVE = Finding(
    "LS307",
    Severity.NOTE,
    "'model.pt' was overwritten in place 3 times; a process killed while it writes leaves half a file.",
    "A checkpoint is written beside its name, then renamed.",
    "save to a temporary name in the same folder, then os.replace.",
    (Witness("torch.save to an existing file", 0, 11, Place(SCRIPT, 32)),),
)
NORM = Finding(
    "LS116",
    Severity.DEVIATION,
    "BatchNorm layer '1' normalises over 8 samples a rank of 16.",
    "Batch statistics are those of the global batch.",
    "convert with SyncBatchNorm, or declare it with --accept LS116.",
    (Witness("8 samples", 0, 0, Place(SCRIPT, 17)), Witness("8 samples", 1, 0, Place(SCRIPT, 17))),
)
BYPASS = Finding(
    "LS101",
    Severity.ERROR,
    "At step 0 the gradients of 4 of 4 parameters differ between the ranks; the forward called the inner module, "
    "not the wrapper.",
    "Every training forward goes through the DistributedDataParallel object.",
    "call wrapped(inputs) instead of model(inputs) in line 28.",
    (
        Witness("gradient of 0.weight has norm 0.4127", 0, 0, Place(SCRIPT, 28)),
        Witness("the wrapper that was not called", None, None, Place(SCRIPT, 18)),
        Witness("gradient of 0.weight has norm 0.5031", 1, 0, Place(SCRIPT, 28)),
    ),
)
ONE = Rung("one process", Status.PASS, "12 steps; the loss goes from 1.42 to 1.1.", seconds=1.31)
PATH = Rung(
    "distributed path", Status.PASS, "One rank with a process group: 12 steps, equal to the last bit.", seconds=1.4
)
TWO = Rung("two processes", Status.PASS, "Both ranks made 12 steps.", seconds=1.62)
PARTITION = Rung(
    "partition", Status.PASS, "3 passes over 64 samples: disjoint, complete, a new order each.", seconds=0.01
)


def example_proof(status: Status = Status.FAIL) -> Proof:
    """A proof that ends like this; the one that fails has a localised difference, pictures and sources."""
    return {Status.PASS: passed, Status.FAIL: failed, Status.ABSTAIN: abstained, Status.ERROR: errored}[status]()


def passed() -> Proof:
    mirror = Rung("mirror", Status.PASS, "12 steps: loss, gradients and weights equal to the last bit.", seconds=1.7)
    shard = Rung("shard", Status.PASS, "12 steps in float64: relative gradient error at most 2.6e-16.", seconds=1.7)
    resume = Rung("resume", Status.PASS, "Killed at step 6, resumed: the weights are equal to the last bit.", (), (),
                  (NORM, SAVE), 3.2)  # fmt: skip
    return _proof((ONE, PATH, TWO, PARTITION, mirror, shard, resume), accepted=("LS116", "LS203"))


def failed() -> Proof:
    place = Place(SCRIPT, 28)
    differences = (
        Difference(0, "gradient", "0.weight", 1, "norm 0.5031 [0.0121, -0.0377, ...]",
                   "norm 0.4402 [0.0098, -0.0251, ...]", 0.7241, place),
        Difference(0, "parameter", "0.weight", 1, "norm 3.2131", "norm 3.2077", 0.0021, place),
        Difference(1, "loss", "", 0, "1.3127", "1.3301", None, place),
    )  # fmt: skip
    causes = (
        Cause("The forward called the module inside the wrapper, so gradients were not averaged.",
              BYPASS.next_step, "LS101", True),
        Cause("The loss is divided by another count.", "divide by the samples of the global batch.", "", False),
        Cause("The ranks start from other weights.", "seed before the model is built.", "LS111", None),
    )  # fmt: skip
    mirror = Rung("mirror", Status.FAIL, "Step 0: the gradient of 0.weight differs on rank 1 (relative error 0.724).",
                  differences, causes, (BYPASS, SAVE), 1.8)  # fmt: skip
    return _proof((ONE, PATH, TWO, PARTITION, mirror), parted=True)


def abstained() -> Proof:
    mirror = Rung("mirror", Status.ABSTAIN, "The loss is a sum over a fixed batch size, so it depends on the share.",
                  seconds=1.7, covered=True)  # fmt: skip
    shard = Rung("shard", Status.PASS, "12 steps in float64: relative gradient error at most 2.6e-16.", seconds=1.7)
    mixed = Rung("mixed precision", Status.ABSTAIN, "This CPU has no bfloat16.",
                 causes=(Cause("No bfloat16 here.", "run it again with a GPU: --device cuda."),))  # fmt: skip
    return _proof((ONE, PATH, TWO, PARTITION, mirror, shard, mixed))


def errored() -> Proof:
    place = Place(SCRIPT, 12)
    late = Finding("LS113", Severity.ERROR, "Rank 1 called no collective while rank 0 waited in barrier.",
                   "All ranks call the same collectives in the same order.", "call barrier on every rank.",
                   (Witness("waits in barrier for 5 s", 0, 4, place), Witness("has left the loop", 1, 4)))  # fmt: skip
    two = Rung(
        "two processes", Status.ERROR, "Rank 1 raised RuntimeError: address already in use.", (), (), (late,), 6.0
    )
    return Proof("train_ddp.py", "train.py", 2, (ONE, PATH, two), sources={SCRIPT: SOURCE}, seconds=8.9)


def hostile() -> Proof:
    """Every text tries to leave its place: markup, quotes, escapes, halves of characters, no UTF-8."""
    bad = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>--> "
    bad += "\x1b[31m\x00\u202e\udcff äöü 数据 ]]> {{ 7*7 }}"
    place = Place(f"/tmp/{bad}/a:b.py", 2)
    witness = Witness(bad, 1, 2, place)
    finding = Finding(bad, Severity.ERROR, bad, bad, bad, (witness, Witness(bad, None, None, Place(bad, 9)), witness))
    difference = Difference(2, bad, bad, 1, bad, bad, math.inf, place)
    rung = Rung(bad, Status.FAIL, bad, (difference, difference), (Cause(bad, bad, bad, True),), (finding,), 1.0)
    return Proof(
        bad, bad, 2, (rung,), (bad,), (Curve(bad, (1.0, math.nan, math.inf)), Curve("reference", (1.0, 2.0, 3.0))),
        (Share(bad, 0, None, ((0, 1, -5), (1, 10**4))),), (Moment(1, bad, 0.0, 1.0, 2, bad, place),),
        {bad: bad}, {place.path: f"one\n{bad}\r\nthree"}, math.inf,
    )  # fmt: skip


def _proof(rungs: tuple[Rung, ...], *, parted: bool = False, accepted: tuple[str, ...] = ()) -> Proof:
    return Proof(
        "train_ddp.py --epochs 3", "train.py --epochs 3", 2, rungs, accepted, curves(parted), shares(64, 2, 3),
        moments(), DIGESTS, {SCRIPT: SOURCE}, 11.4,
    )  # fmt: skip


def curves(parted: bool, steps: int = 12) -> tuple[Curve, ...]:
    noise = random.Random(0)
    reference = tuple(1.4 * math.exp(-step / (2 * steps)) + noise.uniform(-0.04, 0.04) for step in range(steps))
    run = tuple(value + (0.002 * step * noise.random() if parted else 0.0) for step, value in enumerate(reference))
    return Curve("reference", reference), Curve("2 ranks", run)


def shares(length: int, num_ranks: int, passes: int) -> tuple[Share, ...]:
    found = []
    for number in range(passes):
        order = random.Random(number).sample(range(length), length)
        found.append(
            Share(
                f"Tiles/{length}/{length}#0",
                number,
                length,
                tuple(tuple(order[rank::num_ranks]) for rank in range(num_ranks)),
            )
        )
    return tuple(found)


def moments() -> tuple[Moment, ...]:
    kinds = (("batch", 0.002, 19 + 7), ("forward", 0.006, 28), ("backward", 0.009, 29), ("step", 0.002, 30))
    found = []
    for rank in range(2):
        now = 0.004 * rank
        for step in range(3):
            for kind, took, line in kinds:
                end = now + took * (1.4 if rank and kind == "backward" else 1.0)
                found.append(Moment(rank, kind, now, end, step, f"{kind} {step}", Place(SCRIPT, line)))
                if kind == "backward":
                    found.append(Moment(rank, "collective", now + took / 2, end, step, "all_reduce of 676 floats"))
                now = end
        found.append(Moment(rank, "save", now, now + 0.004, 2, "model.pt", Place(SCRIPT, 32)))
    return tuple(found)
