"""What a DataLoader reads: the dataset under its Subsets, and a name for it that two runs can share."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

from lockstep.trace.events import Loader

_REPORTED = "_IterableDataset_len_called"


@dataclass
class Stream:
    """One data source of a script: the datasets that loaders were given, by identity."""

    name: str
    passes: int = 0


@dataclass
class Streams:
    """All that this process has met."""

    _known: dict[int, tuple[Any, Stream]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def of(self, dataset: Any) -> Stream:
        """The stream of a dataset; the same object is the same stream, also in a new loader."""
        known = self._known.get(id(dataset))
        if known is None or known[0]() is not dataset:
            root = root_of(dataset)
            base = f"{type(root).__name__}/{length(root)}/{length(dataset)}"
            number = self._counts[base] = self._counts.get(base, -1) + 1
            known = (_reference(dataset), Stream(f"{base}#{number}"))
            self._known[id(dataset)] = known
        return known[1]


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:  # lists and the like are kept instead
        return lambda: value


def root_of(dataset: Any) -> Any:
    """What stands under all Subsets."""
    while _only_picks(dataset):
        dataset = dataset.dataset
    return dataset


def _only_picks(dataset: Any) -> bool:
    """Whether it is a Subset, and not a class of the user's own that changes what it picks."""
    kind = type(dataset)
    return isinstance(dataset, Subset) and all(
        getattr(kind, name) is getattr(Subset, name) for name in ("__getitem__", "__getitems__")
    )


def length(dataset: Any) -> int | None:
    """len(), None where there is none."""
    held = vars(dataset).get(_REPORTED) if isinstance(dataset, DataLoader) else None
    try:
        return len(dataset)
    except Exception:  # whatever the user's own one raises
        return None
    finally:
        if isinstance(dataset, DataLoader):  # it warns later of the length that it was asked for
            vars(dataset)[_REPORTED] = held


def root_keys(dataset: Any, keys: Sequence[Any]) -> tuple[Any, ...] | None:
    """What the root dataset is asked for: indices, or tuples that end with one; None where that is not known.

    A tuple is what a sampler adds to the index: the epoch, the size of the picture.
    """
    try:
        while _only_picks(dataset):
            keys = [dataset.indices[key] for key in keys]
            dataset = dataset.dataset
        return tuple(_parts(key) if isinstance(key, tuple) else int(key) for key in keys)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        return None


def _parts(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """As plain values, which can be told and read again."""
    first = tuple(one if isinstance(one, str | int | float | None) else one.item() for one in key[:-1])
    return (*first, int(key[-1]))


def ids_of(keys: Sequence[Any]) -> tuple[int, ...]:
    """The indices in such keys."""
    return tuple(key[-1] if isinstance(key, tuple) else key for key in keys)


def root_ids(dataset: Any, ids: Sequence[Any]) -> tuple[int, ...] | None:
    """Indices as the root dataset has them; None where they are no numbers."""
    keys = root_keys(dataset, ids)
    return None if keys is None else ids_of(keys)


def describe(loader: DataLoader[Any], number: int, stream: str, at: str) -> Loader:
    """The event that introduces a loader."""
    dataset = loader.dataset
    iterable = isinstance(dataset, IterableDataset)
    sampler = innermost(loader)
    return Loader(
        loader=number,
        stream=stream,
        dataset=type(dataset).__name__,
        root=type(root_of(dataset)).__name__,
        root_length=length(root_of(dataset)),
        length=None if iterable else length(dataset),
        batches=length(loader),
        batch_size=loader.batch_size,
        sampler="" if iterable else type(sampler).__name__,
        batch_sampler="" if loader.batch_sampler is None else type(loader.batch_sampler).__name__,
        sampler_ranks=_number(sampler, "num_replicas"),
        sampler_rank=_number(sampler, "rank"),
        shuffle=_shuffle(sampler),
        drop_last=bool(loader.drop_last or getattr(sampler, "drop_last", False)),
        workers=loader.num_workers,
        ids=not iterable,
        split=_split(dataset),
        at=at,
    )


def innermost(loader: DataLoader[Any]) -> Any:
    """The sampler that decides the order; inside a batch sampler where it has one."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    inner = getattr(loader.batch_sampler, "sampler", None)
    if inner is not None:
        return inner
    return loader.sampler if loader.batch_size is not None or loader.batch_sampler is None else loader.batch_sampler


def epoch_of(loader: DataLoader[Any]) -> int | None:
    """The epoch that the sampler was told."""
    for holder in (innermost(loader), loader.batch_sampler):
        epoch = _number(holder, "epoch")
        if epoch is not None:
            return epoch
    return None


def _number(holder: Any, name: str) -> int | None:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shuffle(sampler: Any) -> bool | None:
    if isinstance(sampler, RandomSampler):
        return True
    if isinstance(sampler, SequentialSampler):
        return False
    value = getattr(sampler, "shuffle", None)
    return value if isinstance(value, bool) else None


def _split(dataset: Any) -> str:
    if not _only_picks(dataset):
        return ""
    ids = root_ids(dataset, range(len(dataset)))
    return blake2b(repr(ids).encode(), digest_size=8).hexdigest()
