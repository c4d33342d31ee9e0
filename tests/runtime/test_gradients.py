"""In float32, from identical weights, every N has the same gradients up to rounding; a wrong share has not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lockstep.runtime.session import build_session
from lockstep.runtime.step import MicroBatch
from lockstep.runtime.streams import seed_rank_step
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of

# With so small a rate no weight changes, and every step starts from the same ones.
STILL = ["precision=fp32", "optim.lr=1e-30", "optim.name=sgd", "optim.weight_decay=0", "optim.momentum=0"]
BATCHES = {
    "divisible": ["batch.global_batch=16"],
    "indivisible": ["batch.global_batch=15"],
    "accumulation": ["batch.global_batch=16", "batch.accumulation=2"],
    "targets": ["batch.global_targets=500", "batch.micro_targets=130", "data.bucket=4"],
}


def gradients(folder: Path) -> dict[str, list[Tensor]]:
    """The gradient of each of the first steps as one vector, by kind of batch."""
    found: dict[str, list[Tensor]] = {}
    with World.enter(threads=1) as world:
        for name, batch in BATCHES.items():
            config = config_of(*STILL, *batch)
            session = build_session(Segment(batchnorm=False), config, world, None)
            loader, vectors = session.train.epoch(0), []
            for step in range(3):
                hosts = [next(loader) for _ in range(session.train.source.plan.num_micro(step))]
                micro = [MicroBatch(host, session.on_device(host)) for host in hosts]
                seed_rank_step(0, world.rank, step)
                session.step.run(micro)
                vectors.append(torch.cat([p.grad.flatten() for p in session.step.params if p.grad is not None]))
            found[name] = [vector.clone() for vector in vectors]
            session.replica.close()
    return found


@pytest.fixture(scope="module")
def by_n(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, list[Tensor]]]:
    folder = tmp_path_factory.mktemp("gradients")
    return {n: run_ranks(gradients, n, folder)[0] for n in (1, 2, 3, 4)}


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", BATCHES)
def test_same_gradients_in_float32(by_n: dict[int, dict[str, list[Tensor]]], name: str, num_ranks: int) -> None:
    for one, many in zip(by_n[1][name], by_n[num_ranks][name], strict=True):
        assert float((one - many).norm() / one.norm()) < 1e-5


def test_steps_differ(by_n: dict[int, dict[str, list[Tensor]]]) -> None:
    first, second, _ = by_n[1]["divisible"]
    assert float((first - second).norm() / first.norm()) > 0.01
