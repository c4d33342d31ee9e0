"""Workers that die and hang: the sample is named, the others are read."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.core.errors import RunError
from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.crew import Crew
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.worker import Pair
from tests.bad_samples import Planted, Stream, good


class Kept:
    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.found: list[Finding] = []

    @property
    def indices(self) -> list[int]:
        return sorted(np.concatenate([read.indices for read in self.reads]).tolist())

    @property
    def said(self) -> list[tuple[str, int | None, str]]:
        return sorted((one.kind, one.index, one.text) for one in self.found)


def read(data: Any, recipe: Batching | None = None, workers: int = 2, timeout_s: float = 60.0) -> Kept:
    kept = Kept()
    length = None if isinstance(data, Stream) else len(data)
    crew = Crew([Source("train", data, length)], recipe or Batching(), 0, workers, timeout_s, lambda begun: None)
    try:
        crew.read(lambda one, known: kept.reads.append(one), kept.found.append)
    finally:
        crew.close()
    return kept


def test_a_sample_that_kills_is_named_and_no_other_is_lost() -> None:
    kept = read(Planted(40, {5: "kill", 6: "exit", 39: "kill"}))
    assert kept.indices == [index for index in range(40) if index not in (5, 6, 39)]
    assert kept.said == [
        ("fatal", 5, "reading it ended the process with SIGSEGV"),
        ("fatal", 6, "reading it ended the process with exit code 7"),
        ("fatal", 39, "reading it ended the process with SIGSEGV"),
    ]


def test_a_sample_that_hangs_is_named_after_its_time() -> None:
    kept = read(Planted(30, {4: "hang"}), timeout_s=2)
    assert kept.said == [("slow", 4, "reading it took more than 2 s")]
    assert len(kept.indices) == 29


def test_a_sample_that_kills_only_once_is_read_again(tmp_path: Path) -> None:
    class Once(Planted):
        def __getitem__(self, index: int) -> Any:
            if index == 3 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return good(index)

    kept = read(Once(20, {}))
    assert (kept.indices, kept.said) == (list(range(20)), [])


def test_a_collate_that_kills_is_found_by_its_sample() -> None:
    class Deadly(Batching):
        def collate(self, samples: list[Any]) -> Any:
            if any(sample["label"].sum() == 5 * 36 for sample in samples):
                os._exit(3)
            return super().collate(samples)

    class Marked(Planted):
        def __getitem__(self, index: int) -> Any:
            sample = good(index)
            return {**sample, "label": sample["label"] * 0 + 5} if index == 9 else sample

    kept = read(Marked(30, {}), Deadly())
    assert kept.said == [("fatal", 9, "reading it ended the process with exit code 3")]
    assert len(kept.indices) == 29


def test_a_stream_is_read_up_to_what_ends_it() -> None:
    kept = read(Stream(Planted(40, {13: "kill"})))
    assert kept.indices == list(range(13))
    ((kind, index, text),) = kept.said
    assert (kind, index) == ("fatal", 13)
    assert text.endswith("SIGSEGV; the stream was not read further")


def test_where_every_sample_kills_it_gives_up() -> None:
    with pytest.raises(RunError, match="20 workers were lost one after the other"):
        read(Planted(100, dict.fromkeys(range(100), "exit")))


def test_pairs_are_compared_also_where_one_kills() -> None:
    data = Planted(8, {2: "shape", 3: "kill"})
    crew = Crew([Source("train", data, 8)], Batching(), 0, 2, 60, lambda begun: None)
    pairs = [Pair("train", 0, other) for other in (1, 2, 3, 4)]
    try:
        reasons = crew.compare(pairs)
    finally:
        crew.close()
    assert [reasons[pair] is None for pair in pairs] == [True, False, False, True]
    assert reasons[pairs[2]] == "a batch of both ended the process with SIGSEGV"


def test_no_worker_is_left_and_the_bar_is_told() -> None:
    ticks: list[int] = []
    crew = Crew([Source("train", Planted(3000, {}), 3000)], Batching(), 0, 2, 60, ticks.append)
    crew.read(lambda one, known: None, lambda finding: None)
    crew.close()
    assert ticks
    assert max(ticks) <= 3000
