"""Batches from the reference's record instead of the script's own order: whole for every rank, or a rank's slice.

The samples still go through the script's own dataset and collate function. Every random generator is seeded before each
sample and before each batch is handed out, by keys that depend on neither the rank nor the number of ranks.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader

from lockstep.trace import batches
from lockstep.trace.kept import Kept, keep, kept, pass_file, streams_file
from lockstep.trace.seeds import seed_all
from lockstep.trace.streams import ids_of, root_keys, root_of

Role = Literal["record", "mirror", "shard", "own"]


@dataclass(frozen=True)
class FeedPlan:
    """What the loaders of a run yield.

    Attributes:
        role: `record`: the script's own order, kept for others. `mirror`: the reference's batches, whole. `shard`: a
            rank's part of them. `own`: the script's own order, nothing kept.
        folder: where the record is kept, or lies.
        rank, num_ranks: whose part (shard).
        grow: so many batches of the script's own make one (record).
        multiple: rows of a batch are cut to a multiple of this (record).
        per: (p, q): p batches of the reference are q of this program (shard).
        whole: streams that every rank reads whole (shard).
        double: floating values become float64.
        content: batches are kept and replayed as they were collated, instead of through the dataset.
        begun: (stream, passes, batches): what an earlier process has read before this one, whole passes and batches of
            the pass that goes on. Randomness is as if this process had read them (own, mirror).
    """

    role: Role
    folder: Path
    rank: int = 0
    num_ranks: int = 1
    grow: int = 1
    multiple: int = 1
    per: tuple[int, int] = (1, 1)
    whole: tuple[str, ...] = ()
    double: bool = False
    content: bool = False
    begun: tuple[tuple[str, int, int], ...] = ()


@dataclass
class Slice:
    """Where this rank's rows lie in the batch of the reference: start..end of total."""

    start: int = 0
    end: int = 0
    total: int = 0


@dataclass
class Feed:
    """Yields batches as a plan says. current: the rows that the batch handed out last has of the reference's."""

    plan: FeedPlan
    current: Slice = field(default_factory=Slice)
    matched: dict[str, str | None] = field(default_factory=dict)

    def batches(self, loader: DataLoader[Any], stream: str, number: int) -> Iterator[tuple[Any, Any]]:
        """(keys of the root dataset or None, batch) of one pass."""
        if self.plan.role == "record":
            yield from self._recorded(loader, stream, number)
            return
        passes, first = self._begun(stream, number)
        if self.plan.role == "own":
            yield from self._native(loader, stream, number + passes, first)
            return
        number += passes
        known = self._match(stream)
        file = pass_file(self.plan.folder, known, number) if known is not None else None
        if file is None or not file.exists():  # the reference has no such pass
            yield from self._native(loader, stream, number)
            return
        yield from self._replayed(loader, stream, number, kept(file))

    def _begun(self, stream: str, number: int) -> tuple[int, int]:
        passes, batches = next(((one[1], one[2]) for one in self.plan.begun if one[0] == stream), (0, 0))
        return passes, batches if number == 0 else 0

    def _match(self, stream: str) -> str | None:
        if stream not in self.matched:
            known = kept(streams_file(self.plan.folder))
            taken = {one for one in self.matched.values() if one is not None}
            self.matched[stream] = match(stream, len(self.matched), known, taken)
        return self.matched[stream]

    # ---- the reference ----

    def _recorded(self, loader: DataLoader[Any], stream: str, number: int) -> Iterator[tuple[Any, Any]]:
        self._introduce(stream)
        for count, one in enumerate(_grown(self._own(loader), self.plan.grow, loader)):
            batch = self._cut(one, loader)
            if batch is None:
                continue
            keys, content = self._handed(loader, batch, (stream, number, count))
            keep(pass_file(self.plan.folder, stream, number), Kept(keys, content) if self.plan.content else batch)
            yield keys, content

    def _introduce(self, stream: str) -> None:
        path = streams_file(self.plan.folder)
        if not path.exists() or stream not in kept(path):
            keep(path, stream)

    def _own(self, loader: DataLoader[Any]) -> Iterator[Kept]:
        """The script's own batches: of a map-style dataset only their keys."""
        if _is_map(loader):
            sampler = loader._index_sampler
            for asked in sampler:
                several = loader._auto_collation and isinstance(asked, list | tuple)
                keys = root_keys(loader.dataset, list(asked) if several else [asked])
                if keys is None:
                    yield Kept(None, loader.collate_fn(_fetch(loader, asked)))
                else:
                    yield Kept(keys, None)
        else:
            for batch in _in_process(loader):
                yield Kept(None, batch)

    def _cut(self, one: Kept, loader: DataLoader[Any]) -> "Kept | None":
        multiple = self.plan.multiple
        if multiple == 1 or (loader.batch_size is None and loader.batch_sampler is None):
            return one
        size = one.size
        if size is None:
            return one
        rows = size - size % multiple
        return one.rows(0, rows) if rows else None

    # ---- the ranks ----

    def _replayed(
        self, loader: DataLoader[Any], stream: str, number: int, kept: Sequence[Kept]
    ) -> Iterator[tuple[Any, Any]]:
        for count, (one, rows) in enumerate(self._mine(stream, kept)):
            yield self._handed(loader, one, (stream, number, count), rows)

    def _mine(self, stream: str, kept: Sequence[Kept]) -> Iterator[tuple[Kept, Slice]]:
        """What this rank gets, and where it lies in the batch that all ranks get together."""
        plan = self.plan
        if plan.role == "mirror" or stream in plan.whole:
            yield from ((one, _all_of(one)) for one in kept)
            return
        several, into = plan.per
        for start in range(0, len(kept) - several + 1, several):
            joined = Kept.join(kept[start : start + several])
            size = joined.size
            if size is None:
                yield joined, Slice()
                continue
            rows = size // (into * plan.num_ranks)
            for turn in range(into if rows else 0):
                first = (turn * plan.num_ranks + plan.rank) * rows
                place = Slice(plan.rank * rows, (plan.rank + 1) * rows, rows * plan.num_ranks)
                yield joined.rows(first, first + rows), place

    def _native(self, loader: DataLoader[Any], stream: str, number: int, first: int = 0) -> Iterator[tuple[Any, Any]]:
        for count, one in enumerate(self._own(loader), first):
            yield self._handed(loader, one, (stream, number, count))

    def _handed(
        self, loader: DataLoader[Any], one: Kept, key: tuple[Any, ...], rows: Slice | None = None
    ) -> tuple[Any, Any]:
        place = key[1:]  # the names of streams may differ between two scripts
        self.current = Slice()  # what the dataset draws is a sample's own
        kept = one.batch is not None
        batch = one.batch if kept else self._fetched(loader, one.keys or (), place)
        if self.plan.double:
            batch = batches.mapped(batch, batches.as_double)
        self.current = rows or _all_of(one)
        seed_all("batch", *place)
        return one.keys, batch

    def _fetched(self, loader: DataLoader[Any], keys: Sequence[Any], place: tuple[Any, ...]) -> Any:
        root = root_of(loader.dataset)
        if loader._auto_collation:
            if hasattr(root, "__getitems__"):
                seed_all("samples", *place)
                samples = root.__getitems__(list(keys))
            else:
                samples = [_sample(root, key, place) for key in keys]
        else:
            samples = _sample(root, keys[0], place)
        seed_all("collate", *place)
        return loader.collate_fn(samples)


def _sample(root: Any, key: Any, place: tuple[Any, ...]) -> Any:
    seed_all("sample", *ids_of([key]), *place[:1])
    return root[key]


def _all_of(one: Kept) -> Slice:
    return Slice(0, one.size or 0, one.size or 0)


def match(stream: str, number: int, known: Sequence[str], taken: Collection[str] = ()) -> str | None:
    """The reference's stream that a program's stream stands for.

    Args:
        stream: `Type/root length/length#k`.
        number: how many other streams the program has read before.
        known: the reference's, in order of first reading.
        taken: those that another stream of the program stands for already.
    """
    if stream in known:
        return stream
    kind, root = stream.split("/")[:2]
    same = [one for one in known if one.split("/")[:2] == [kind, root]]
    if same:
        return next((one for one in same if one not in taken), same[0])
    return known[number] if number < len(known) else None


def _grown(own: Iterator[Kept], grow: int, loader: DataLoader[Any]) -> Iterator[Kept]:
    if grow == 1:
        yield from own
        return
    held: list[Kept] = []
    for one in own:
        held.append(one)
        if len(held) == grow:
            yield Kept.join(held)
            held = []
    if held:
        yield Kept.join(held)


def _is_map(loader: DataLoader[Any]) -> bool:
    return loader._dataset_kind == 0


def _fetch(loader: DataLoader[Any], asked: Any) -> Any:
    dataset = loader.dataset
    if not loader._auto_collation:
        return dataset[asked]
    return dataset.__getitems__(asked) if hasattr(dataset, "__getitems__") else [dataset[index] for index in asked]


def _in_process(loader: DataLoader[Any]) -> Iterator[Any]:
    """An iterable dataset's batches, read in this process."""
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

    workers, timeout = loader.num_workers, loader.timeout
    loader.__dict__.update(num_workers=0, timeout=0)
    try:
        iterator = _SingleProcessDataLoaderIter(loader)
    finally:
        loader.__dict__.update(num_workers=workers, timeout=timeout)
    yield from iterator
