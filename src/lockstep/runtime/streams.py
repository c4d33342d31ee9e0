"""Three random streams, each a pure function of names: shared by all ranks, of one rank, of one sample."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_of(*names: int | str) -> int:
    """A seed in 0 .. 2^63 - 1 that depends on every name and on nothing else."""
    text = "/".join(map(str, names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed torch (CPU and this rank's GPU), numpy's global state and `random`."""
    # torch.manual_seed would also record a stack trace for every GPU that is not in use yet.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def seed_rank_step(seed: int, rank: int, step: int) -> None:
    """Start the *rank* stream of one optimizer step: dropout and noise, different on every rank.

    A function of the step, it needs no state in a checkpoint, and nothing drawn between steps can shift it.
    """
    seed_everything(seed_of(seed, "rank", rank, step))


def seed_sample(seed: int, stream: str, epoch: int, index: int) -> None:
    """Start the *sample* stream: augmentation depends neither on N nor on the number of workers.

    GPU generators are left alone: samples are made on the host.
    """
    value = seed_of(seed, stream, epoch, index)
    torch.default_generator.manual_seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    random.seed(value)


@contextmanager
def shared_stream(seed: int, purpose: str) -> Iterator[None]:
    """Run the block under the *shared* stream: the same numbers on every rank (initialisation, splits)."""
    with preserved():
        seed_everything(seed_of(seed, "shared", purpose))
        yield


@contextmanager
def preserved() -> Iterator[None]:
    """Give torch's, numpy's and `random`'s global states back as they were."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    states: tuple[Any, ...] = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)
