"""The start-up check: what each rank will read, and that the shares are disjoint and complete."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.data.order import EpochPlan
from lockstep.runtime.data.packing import PackedPlan
from lockstep.runtime.data.sampler import TrainSampler
from lockstep.runtime.data.sizing import sized
from lockstep.runtime.world import World


@dataclass(frozen=True)
class Share:
    """What one rank reads in an epoch.

    Attributes:
        length: samples that this rank's data set has.
        count: samples that the rank reads.
        digest: sum of the mixed indices modulo 2^64; equal sets have equal digests.
        first: the first indices.
    """

    length: int
    count: int
    digest: int
    first: list[int]


def mixed(indices: NDArray[np.int64]) -> int:
    """Sum modulo 2^64 of each index after a bijective mix, so that sets can be compared by one number."""
    z = indices.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))).sum(dtype=np.uint64))


def share_of(sampler: TrainSampler) -> Share:
    """The share of the sampler's own rank in the current epoch."""
    mine = np.array([index for keys in sampler for _, index in keys], dtype=np.int64)
    return Share(sampler.length, len(mine), mixed(mine), mine[:4].tolist())


def check_lengths(val_data: Dataset[Any] | None, world: World) -> None:
    """Compare the length of the validation set over the ranks.

    Raises:
        UserError: where ranks see validation sets of different length.
    """
    _same_length("validation", world.gather(0 if val_data is None else sized(val_data, "val_data")))


def _same_length(name: str, lengths: list[int]) -> None:
    if len(set(lengths)) > 1:
        seen = f"the {name} set has {', '.join(f'{n} samples on rank {r}' for r, n in enumerate(lengths))}"
        must = "every rank sees the same data set"
        raise UserError(explain(seen, must, next_step="sort the files, and split them with a fixed seed"))


def check_shares(sampler: TrainSampler, world: World) -> str:
    """Compare the shares of all ranks with the epoch; a line for the log.

    Raises:
        UserError: where there are fewer samples than ranks, or ranks see data sets of different length.
        RunError: where the shares overlap or leave a sample out.
    """
    if sampler.sizing is not None:
        _same_length("training", world.gather(sampler.length))
        sampler.sizing.check(world)
    shares, plan = world.gather(share_of(sampler)), sampler.plan
    _same_length("training", [share.length for share in shares])
    if sampler.length < world.num_ranks:
        seen = f"{sampler.length} training samples for {world.num_ranks} ranks"
        raise UserError(explain(seen, "at least one sample for each rank", next_step="lower --nproc"))
    _compare(shares, plan, sampler)
    shown = [f"rank {r} {share.count} (first {', '.join(map(str, share.first))})" for r, share in enumerate(shares[:4])]
    more = f", and {len(shares) - 4} more ranks" if len(shares) > 4 else ""
    dropped = f"; left out at the end, fewer than the ranks: {plan.dropped}" if plan.dropped else ""
    return (
        f"data: {plan.length - plan.start} samples, {', '.join(shown)}{more}; shares are disjoint and complete{dropped}"
    )


def _compare(shares: list[Share], plan: EpochPlan | PackedPlan, sampler: TrainSampler) -> None:
    expected = sampler.order(sampler.epoch)[plan.start : plan.length - plan.dropped]
    count, digest = sum(s.count for s in shares), sum(s.digest for s in shares) % 2**64
    if (count, digest) != (len(expected), mixed(expected)):
        seen = f"the ranks read {count} samples of {len(expected)}, and not each once"
        counts = ", ".join(f"rank {r}: {s.count}" for r, s in enumerate(shares))
        raise RunError(explain(seen, "shares are disjoint and complete", counts))
