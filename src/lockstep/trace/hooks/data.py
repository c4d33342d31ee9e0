"""Loaders: who reads which samples, in which order, in which pass."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from lockstep.trace import batches, streams
from lockstep.trace.events import Batch, Pass, PassEnd, SetEpoch
from lockstep.trace.feed import Feed
from lockstep.trace.hooks.randomness import random_state
from lockstep.trace.hooks.workers import Notes
from lockstep.trace.recorder import Recorder
from lockstep.trace.streams import Stream, Streams

_ROWS = 8  # at default detail content is told for so many batches of a pass


@dataclass
class Reading:
    """One pass over a loader. ids: of the batches that are being prepared, the next to come first. notes: of its
    workers, None without. collates: the sampler gives several indices at a time."""

    loader: int
    stream: Stream
    number: int
    dataset: Any
    ids: deque[Any] = field(default_factory=deque)
    batches: int = 0
    notes: Notes | None = None
    collates: bool = True
    ended: bool = False


class DataHooks:
    """The loaders of this process, and the passes over them. feed: where batches come from instead, or None."""

    def __init__(self, recorder: Recorder, feed: Feed | None) -> None:
        self.recorder, self.feed = recorder, feed
        self.streams = Streams()
        self.numbers: WeakKeyDictionary[DataLoader[Any], int] = WeakKeyDictionary()
        self.built: WeakKeyDictionary[DataLoader[Any], str] = WeakKeyDictionary()
        self._told: set[type] = set()
        self.joins = 0  # that are open
        self.met = 0  # loaders so far

    def begin(self, loader: DataLoader[Any]) -> Reading:
        """A pass begins: tell of the loader if it is new, and of the pass."""
        stream = self.streams.of(loader.dataset)
        if loader not in self.numbers:
            self.numbers[loader] = self.met  # loaders that are gone keep their numbers
            self.met += 1
            at = self.built.get(loader, "")
            with self.recorder.ours:
                self.recorder.emit(streams.describe(loader, self.numbers[loader], stream.name, at))
        reading = Reading(self.numbers[loader], stream, stream.passes, loader.dataset)
        reading.collates = loader._auto_collation
        stream.passes += 1
        self.recorder.emit(
            Pass(
                loader=reading.loader,
                stream=stream.name,
                number=reading.number,
                epoch=streams.epoch_of(loader),
                grad=torch.is_grad_enabled(),
                joined=self.joins > 0,
            )
        )
        self.tell_state("pass")
        return reading

    def tell_state(self, when: str) -> None:
        """Of the random generators, in training."""
        if self.recorder.detailed and torch.is_grad_enabled():
            random_state(self.recorder, when)

    def hand_out(self, reading: Reading, batch: Any, ids: Any, known: bool = True) -> None:
        """Tell of one batch. ids: as the sampler gave them; known: whether they are sample indices at all."""
        keys = None
        if known and ids is not None:
            several = reading.collates or not (isinstance(ids, tuple) and _is_key(ids))
            listed = list(ids) if isinstance(ids, list | tuple) and several else [ids]
            keys = streams.root_keys(reading.dataset, listed)
        self.tell(reading, batch, keys)

    def tell(self, reading: Reading, batch: Any, keys: tuple[Any, ...] | None) -> None:
        """Tell of one batch; keys: what the root dataset was asked for, None where that is not known."""
        number = reading.batches
        reading.batches += 1
        with self.recorder.ours:
            self.recorder.emit(self._batch(reading, batch, keys, number))

    def _batch(self, reading: Reading, batch: Any, keys: tuple[Any, ...] | None, number: int) -> Batch:
        roots = streams.ids_of(keys) if keys is not None else None
        size = len(roots) if roots is not None else batches.size_of(batch)
        shown = self.recorder.full or roots is None or number < _ROWS
        return Batch(
            loader=reading.loader,
            stream=reading.stream.name,
            number=reading.number,
            batch=number,
            ids=roots,
            keys=keys if keys != roots else None,
            size=size,
            rows=batches.row_digests(batch, size) if shown else {},
            shapes=batches.row_shapes(batch, size) if shown else {},
            grad=torch.is_grad_enabled(),
            noise=reading.notes.told() if reading.notes is not None and number < _ROWS else {},
        )

    def finish(self, reading: Reading) -> None:
        """A pass was read to its end; a script may ask beyond it again."""
        if reading.ended:
            return
        reading.ended = True
        self.recorder.emit(
            PassEnd(loader=reading.loader, stream=reading.stream.name, number=reading.number, batches=reading.batches)
        )

    def watch_epochs(self, owner: Any, loader: DataLoader[Any]) -> None:
        """Tell of `set_epoch` of a sampler, batch sampler or dataset that the user wrote."""
        kind = type(owner)
        if kind in self._told or not callable(getattr(kind, "set_epoch", None)) or kind is DistributedSampler:
            return
        if issubclass(kind, DistributedSampler) and "set_epoch" not in vars(kind):
            return
        self._told.add(kind)
        with contextlib.suppress(TypeError):  # a class in C cannot be hooked
            self.recorder.patch(kind, "set_epoch", self.told_epoch)

    def told_epoch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`set_epoch` that tells."""

        def set_epoch(sampler: Any, epoch: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(epoch, int):
                self.recorder.emit(
                    SetEpoch(sampler=type(sampler).__name__, value=epoch, loader=self._loader_of(sampler))
                )
            return original(sampler, epoch, *args, **kwargs)

        return set_epoch

    def _loader_of(self, sampler: Any) -> int | None:
        for loader, number in list(self.numbers.items()):
            owners = (loader.sampler, loader.batch_sampler, loader.dataset, streams.innermost(loader))
            if any(sampler is one for one in owners):  # comparing arrays would give arrays
                return number
        return None


def _is_key(ids: tuple[Any, ...]) -> bool:
    return len(ids) == 2 and not isinstance(ids[0], tuple)


def install(recorder: Recorder, feed: Feed | None = None) -> DataHooks:
    """Hook DataLoader, its iterators and `set_epoch`."""
    hooks = DataHooks(recorder, feed)
    recorder.patch(DataLoader, "__init__", lambda original: _init(original, hooks))
    recorder.patch(DataLoader, "__iter__", lambda original: _iter(original, hooks))
    recorder.patch(_BaseDataLoaderIter, "_next_index", lambda original: _next_index(original, recorder))
    recorder.patch(_BaseDataLoaderIter, "_reset", _reset)
    recorder.patch(_BaseDataLoaderIter, "__next__", lambda original: _next(original, hooks))
    recorder.patch(DistributedSampler, "set_epoch", hooks.told_epoch)
    recorder.patch(Join, "__enter__", lambda original: _joining(original, hooks, 1))
    recorder.patch(Join, "__exit__", lambda original: _joining(original, hooks, -1))
    return hooks


def _joining(original: Callable[..., Any], hooks: DataHooks, change: int) -> Callable[..., Any]:
    def joining(*args: Any, **kwargs: Any) -> Any:
        hooks.joins += change
        return original(*args, **kwargs)

    return joining


def _init(original: Callable[..., None], hooks: DataHooks) -> Callable[..., None]:
    def init(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
        original(loader, *args, **kwargs)
        hooks.built.setdefault(loader, hooks.recorder.where())
        for owner in (loader.sampler, loader.batch_sampler, loader.dataset):
            hooks.watch_epochs(owner, loader)

    return init


def _iter(original: Callable[..., Any], hooks: DataHooks) -> Callable[..., Any]:
    def iterate(loader: DataLoader[Any]) -> Any:
        if not hooks.recorder.alive:
            return original(loader)
        reading = hooks.begin(loader)
        if hooks.feed is not None:
            return _fed(hooks, hooks.feed, loader, reading)
        Notes.current = Notes() if loader.num_workers else None
        iterator = original(loader)
        # Workers that stay have the notes of the pass in which they were started.
        reading.notes = iterator.__dict__.setdefault("_lockstep_notes", Notes.current)
        reading.ids = iterator.__dict__.setdefault("_lockstep_ids", deque())
        iterator._lockstep = reading
        return iterator

    return iterate


def _fed(hooks: DataHooks, feed: Feed, loader: DataLoader[Any], reading: Reading) -> Iterator[Any]:
    for keys, batch in feed.batches(loader, reading.stream.name, reading.number):
        hooks.tell(reading, batch, keys)
        yield batch
    hooks.finish(reading)


def _next_index(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def next_index(iterator: Any) -> Any:
        ids = original(iterator)
        if not recorder.alive:  # a process that was forked has hooks of its own besides
            return ids
        # The prefetching iterator asks from its constructor, before it has a pass.
        iterator.__dict__.setdefault("_lockstep_ids", deque()).append(ids)
        return ids

    return next_index


def _reset(original: Callable[..., Any]) -> Callable[..., Any]:
    def reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        iterator.__dict__.setdefault("_lockstep_ids", deque()).clear()
        notes = iterator.__dict__.get("_lockstep_notes")
        if notes is not None:
            notes.clear()
        return original(iterator, *args, **kwargs)

    return reset


def _next(original: Callable[..., Any], hooks: DataHooks) -> Callable[..., Any]:
    def next_batch(iterator: Any) -> Any:
        reading = getattr(iterator, "_lockstep", None)
        if reading is None or not hooks.recorder.alive:
            return original(iterator)
        hooks.tell_state("fetch")
        try:
            batch = original(iterator)
        except StopIteration:
            hooks.finish(reading)
            raise
        except BaseException as error:
            hooks.recorder.raised("batch", error)
            raise
        ids = reading.ids.popleft() if reading.ids else None
        # With several workers and in_order=False nobody but torch knows which indices a batch has.
        ordered = getattr(iterator, "_in_order", True) or iterator._num_workers < 2
        hooks.hand_out(reading, batch, ids, known=ordered and iterator._dataset_kind == 0)
        hooks.tell_state("batch")
        return batch

    return next_batch
