"""Events of loaders: who reads which samples, in which order, in which pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.trace.event import Event


@dataclass(frozen=True, kw_only=True)
class Loader(Event):
    """A DataLoader, told before its first pass; `at` is where it was built.

    loader: number in order of first iteration on this rank. stream: names its data so that ranks, and two scripts, can
    be compared: `Type/root length/length#k`. dataset, root: type names; root is what Subsets stand on. length: of the
    dataset as the loader has it, None for iterables. batches: len(loader), None where it has none. batch_size: None
    with a batch sampler of the user's. sampler_ranks: the sampler's num_replicas, None where it has none. shuffle: the
    sampler's `shuffle`, or whether it is a random sampler; None where unknown. ids: whether batches have sample indices
    (map-style). split: digest of a Subset's indices, "".
    """

    loader: int
    stream: str
    dataset: str = ""
    root: str = ""
    root_length: int | None = None
    length: int | None = None
    batches: int | None = None
    batch_size: int | None = None
    sampler: str = ""
    batch_sampler: str = ""
    sampler_ranks: int | None = None
    sampler_rank: int | None = None
    shuffle: bool | None = None
    drop_last: bool = False
    workers: int = 0
    ids: bool = True
    split: str = ""


@dataclass(frozen=True, kw_only=True)
class Pass(Event):
    """`iter(loader)`. number: passes over this stream so far, from 0. epoch: of the sampler (`set_epoch`), None where
    it has none. grad: whether gradients were enabled (an evaluation usually has them off). joined: within
    `model.join()`."""

    loader: int
    stream: str
    number: int
    epoch: int | None = None
    grad: bool = True
    joined: bool = False


@dataclass(frozen=True, kw_only=True)
class Batch(Event):
    """A batch was handed to the script.

    ids: indices in the *root* dataset (through Subsets); None for iterables. keys: what it was asked for, where that is
    more than the index. size: samples, None where unknown.
    rows: a digest a sample, for each tensor of the batch whose first dimension is the batch: {"0": (...)}; at default
    detail of the first batches of a pass only, unless there are no ids. shapes: of such a row. grad: whether gradients
    were enabled.
    noise: {lib: digest of the state} from which the first worker of this pass has drawn random numbers; empty if it
    drew none, or there are no workers.
    """

    loader: int
    stream: str
    number: int
    batch: int
    ids: tuple[int, ...] | None = None
    keys: tuple[Any, ...] | None = None
    size: int | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    grad: bool = True
    noise: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PassEnd(Event):
    """A pass was read to its end (a script that breaks out leaves no such event). batches: handed out."""

    loader: int
    stream: str
    number: int
    batches: int


@dataclass(frozen=True, kw_only=True)
class SetEpoch(Event):
    """`sampler.set_epoch(value)`. sampler: its type. loader: number of the loader it belongs to, None if of none so
    far (it is given when the loader is first iterated)."""

    sampler: str
    value: int
    loader: int | None = None
