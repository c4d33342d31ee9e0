"""What a block of samples came to."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lockstep.runtime.scanning.build import Build
from lockstep.runtime.scanning.finding import Finding


@dataclass
class Read:
    """What a block of samples came to; nothing of the samples themselves.

    Attributes:
        indices: (n,) of the samples that could be read.
        builds: (n,) numbers of their builds, which `Reader` counts from 0 as it meets them.
        sizes: (n,) bytes.
        names: (n,) digests of their files; empty where the data set does not name them.
        new: builds met for the first time, in the order of their numbers.
        counts: (num_classes,) labels by class, None where the recipe names no labels.
        done: samples that were tried.
        ended: whether a stream came to its end.
        seconds: how long it took.
    """

    split: str
    indices: NDArray[np.int64]
    builds: NDArray[np.int32]
    sizes: NDArray[np.int64]
    names: NDArray[np.uint64]
    new: list[Build]
    findings: list[Finding]
    counts: NDArray[np.int64] | None = None
    ignored: int = 0
    done: int = 0
    ended: bool = False
    seconds: float = 0.0


@dataclass
class Gathering:
    """What is gathered while a block is read; its fields are those of `Read`."""

    indices: list[int] = field(default_factory=list)
    builds: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    new: list[Build] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: NDArray[np.int64] | None = None
    ignored: int = 0

    def read(self, split: str, done: int, ended: bool, seconds: float) -> Read:
        """The block, to be sent."""
        return Read(
            split,
            np.array(self.indices, np.int64),
            np.array(self.builds, np.int32),
            np.array(self.sizes, np.int64),
            np.array(self.names, np.uint64),
            self.new,
            self.findings,
            self.counts,
            self.ignored,
            done,
            ended,
            seconds,
        )
