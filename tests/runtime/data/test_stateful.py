"""A stream with a state of its own goes on there: what is read after a resume is what was left, at no loss of order."""

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.data import stateful
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.loader import Reading, TrainLoader
from lockstep.runtime.data.stateful import StateTaker, StreamState
from tests.runtime.data.sources import Noisy, Task, world_of


class Shuffling(IterableDataset[Any]):
    """Items that leave a buffer in random order; its state is the buffer, the generator and the place in the source."""

    def __init__(self, length: int, reads: Path | None = None, foreign: bool = False, refuses: bool = False) -> None:
        self.samples, self.reads, self.foreign, self.refuses = Noisy(length), reads, foreign, refuses
        self.place, self.buffer, self.draw = 0, list[int](), random.Random(7)

    def __iter__(self) -> Iterator[Any]:
        while self.place < len(self.samples) or self.buffer:
            while self.place < len(self.samples) and len(self.buffer) < 4:
                self.buffer.append(self.place)
                self.place += 1
            index = self.buffer.pop(self.draw.randrange(len(self.buffer)))
            if self.reads is not None:
                with self.reads.open("ab") as file:
                    file.write(b".")
            yield self.samples[index]

    def state_dict(self) -> dict[str, Any]:
        state = {"place": self.place, "buffer": self.buffer, "draw": self.draw.getstate()}  # live objects
        return {**state, "what": Path("x")} if self.foreign else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.refuses:
            raise KeyError("place")
        self.place, self.buffer = state_dict["place"], state_dict["buffer"]
        self.draw = random.Random()
        self.draw.setstate(state_dict["draw"])


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "SHARE", 1e9)


def loader(stream: Any, workers: int = 0, rank: int = 0, ranks: int = 1, batch: int = 6) -> TrainLoader:
    return TrainLoader(stream, Task(), Reading(workers, seed=3), world_of(rank, ranks), batch, 2)


def taken(one: TrainLoader, epoch: int, start: int, steps: int | None) -> list[list[Any]]:
    """The first steps, micro-batch by micro-batch, as (index, draws)."""
    found = []
    for number, batch in enumerate(one.epoch(epoch, start), 1):
        found.append([(i, tuple(d)) for i, d in zip(batch["index"].tolist(), batch["draws"].tolist(), strict=True)])
        if steps is not None and number == 2 * steps:
            break
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_it_goes_on_from_the_last_consumed_step_and_reads_only_what_is_left(
    tmp_path: Path, workers: int, steps: int
) -> None:
    whole = taken(loader(Shuffling(30)), 1, 0, None)
    first = loader(Shuffling(30), workers)
    begun = taken(first, 1, 0, steps)
    state = first.stream_state(2 * steps)
    assert state is not None and (state.epoch, state.position) == (1, 6 * steps)
    reads = tmp_path / "reads"
    for ranks in (1, 2):
        rest = []
        for rank in range(ranks):
            again = loader(Shuffling(30, reads), workers, rank, ranks)
            again.source.resume_from = state  # type: ignore[union-attr]
            rest.append(taken(again, 1, 6 * steps, None))
        both = [list(chain.from_iterable(micro)) for micro in zip(*rest, strict=True)]
        assert [sorted(micro) for micro in begun + both] == [sorted(micro) for micro in whole]
    assert reads.stat().st_size == max(1, workers) * 3 * (30 - 6 * steps)


def test_what_was_read_ahead_does_not_count() -> None:
    one = loader(Shuffling(30), workers=1)
    batches = one.epoch(0)
    for _ in range(5):  # micro-batches: two steps and a half
        next(batches)
    assert [state.position if (state := one.stream_state(k)) else None for k in (1, 2, 3, 4, 5)] == [None, 6, 6, 12, 12]
    del batches


def test_the_next_epoch_begins_at_the_beginning() -> None:
    one = loader(Shuffling(20))
    first = taken(one, 0, 0, None)
    assert [[i for i, _ in micro] for micro in taken(one, 1, 0, None)] == [[i for i, _ in micro] for micro in first]
    begun = loader(Shuffling(20))
    taken(begun, 0, 0, 2)
    again = loader(Shuffling(20))
    again.source.resume_from = begun.stream_state(4)  # type: ignore[union-attr]
    assert taken(again, 0, 12, None) == first[4:]
    assert len(taken(again, 1, 0, None)) == len(first)


def test_only_who_saves_takes_states_and_none_after_the_end() -> None:
    last = [shared.after for shared in SplitStream(Shuffling(9), 6, 1, 0, 0, 2)]  # type: ignore[union-attr]
    assert [state.position if state else None for state in last] == [6, None]
    assert not any(shared.after for shared in SplitStream(Shuffling(9), 6, 1, 0, 1, 2))  # type: ignore[union-attr]


def test_a_state_of_another_epoch_or_a_later_place_is_left_alone(tmp_path: Path) -> None:
    for epoch, position in ((0, 6), (1, 12)):
        reads = tmp_path / f"{epoch}-{position}"
        one = loader(Shuffling(20, reads))
        one.source.resume_from = StreamState(epoch, position, {"nothing": "usable"})  # type: ignore[union-attr]
        assert len(taken(one, 1, 6, None)) == 5
        assert reads.stat().st_size == 20


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_that_no_checkpoint_can_hold_is_told_at_the_first_step(workers: int) -> None:
    with pytest.raises(UserError, match=r"(?s)state_dict\(\) of the training stream cannot be kept.*weights_only=True"):
        taken(loader(Shuffling(20, foreign=True), workers), 0, 0, None)


def test_a_state_that_is_refused_is_an_error_of_the_data_set() -> None:
    one = loader(Shuffling(20, refuses=True))
    one.source.resume_from = StreamState(0, 6, {})  # type: ignore[union-attr]
    with pytest.raises(RunError, match="raised KeyError: 'place'"):
        taken(one, 0, 6, None)


def test_a_state_that_cannot_be_taken_is_an_error_of_the_data_set() -> None:
    class Raises(Shuffling):
        def state_dict(self) -> dict[str, Any]:
            if self.place:
                raise ValueError("no state here")
            return super().state_dict()

    with pytest.raises(RunError, match="raised ValueError: no state here"):
        taken(loader(Raises(20)), 0, 0, None)


def test_tensors_are_plain_values_too() -> None:
    assert stateful.not_plain(StreamState(0, 1, {"rng": torch.get_rng_state(), "n": (1, [2.0, None, "x"])})) is None


def test_a_state_that_is_costly_is_taken_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "SHARE", 0.05)
    now = 0.0

    class Costly(Shuffling):
        def state_dict(self) -> dict[str, Any]:
            nonlocal now
            now += 1.0
            return {}

    monkeypatch.setattr(stateful.time, "perf_counter", lambda: now)
    taker, made = StateTaker(), 0
    for step in range(100):
        now += 1.0
        made += taker.take(Costly(9), 0, step) is not None
    assert 5 <= made <= 6


class Stateless(Shuffling):
    """Has the methods and no state, or from some item on one that no checkpoint holds."""

    late = False

    def state_dict(self) -> Any:
        return {"kind": np.int64(3)} if self.late else None


def test_none_is_no_state_and_a_state_that_goes_bad_is_told() -> None:
    stream = SplitStream(Stateless(20), 6, 1, 0, 0, 1)
    assert not any(shared.after for shared in stream)  # type: ignore[union-attr]
    taker, data = StateTaker(), Stateless(20)
    assert taker.take(data, 0, 6) is None
    data.late = True
    taker._not_before = 0.0
    found = taker.take(data, 0, 12)
    assert isinstance(found, Broken)
    assert "state['kind'] is of type numpy.int64" in found.message
