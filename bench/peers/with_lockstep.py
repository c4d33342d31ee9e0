"""Lockstep's runtime, as `lockstep train` runs it, its logs and metrics.jsonl included.

BENCH_LOCKSTEP: `plain` switches off the defaults that make the step itself faster (channels_last, fused optimizer), so
that what is compared is the loop; `no-comm` lets every rank train by itself at the same time, one of N = 1.
"""

import os
import socket
import tempfile
from pathlib import Path

from common import BATCH, LR, PRECISION, SEED, STEPS, WARMUP, Clock, last
from torch.optim.optimizer import register_optimizer_step_post_hook

VARIANT = os.environ.get("BENCH_LOCKSTEP", "")
PLAIN = ["memory.channels_last=false", "optim.fused=false"]


def arguments(num_ranks: int) -> list[str]:
    """The command line of the job; whatever the other contenders do not do either is switched off."""
    recipe = Path(__file__).with_name("lockstep_recipe.py")
    return [
        f"recipe={recipe}:Peer",
        f"options.samples={(STEPS + WARMUP) * BATCH * num_ranks}",
        f"batch.global_batch={BATCH * num_ranks}",
        "run.device=cpu",
        f"run.threads={os.environ.get('OMP_NUM_THREADS', 'auto')}",
        f"seed={SEED}",
        f"precision={PRECISION}",
        f"optim.lr={LR}",
        "schedule.name=constant",
        "data.workers=0",
        "evaluate.every_epochs=null",
        "checkpoint.every_epochs=null",
        "log.tensorboard=off",
        "log.progress=off",
        *(PLAIN if VARIANT == "plain" else []),
    ]


def train(options: list[str], folder: Path) -> None:
    """Run this rank's part of `lockstep train`, in this process."""
    from lockstep.runtime.config import load_config
    from lockstep.train import train_rank

    train_rank(load_config(None, options), folder, resume=False, notes=[], launch="bench")


def alone() -> None:
    """Make this process a run of its own: one rank of one."""
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])


clock = Clock()
rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = Path(os.environ.get("BENCH_DIR", tempfile.gettempdir())) / f"lockstep-bench-{os.environ['MASTER_PORT']}"
if VARIANT == "no-comm":
    alone()
    shared, num_ranks = shared / str(rank), 1
register_optimizer_step_post_hook(lambda optimizer, args, kwargs: clock.tick())
train(arguments(num_ranks), shared)
if rank == 0:
    clock.report("lockstep", last["loss"].item(), num_ranks)
