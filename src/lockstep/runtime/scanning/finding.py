"""What a scan says of a sample or a file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KINDS = {
    "unreadable": "cannot be read",
    "fatal": "ends the process that reads it",
    "slow": "not read in time",
    "structure": "not built like the others",
    "dtype": "another type than the others",
    "shape": "a shape that cannot be batched with the others",
    "empty": "empty",
    "nonfinite": "NaN or infinite",
    "label": "label outside the classes",
    "collate": "cannot be made into a batch",
    "stray": "a file that makes no sample",
    "often_empty": "empty in many samples",
    "twice": "the same file twice in a split",
    "both": "the same file in training and validation",
}
"""Kinds of findings in the order of a report, and their words."""

NOTES = frozenset({"often_empty", "twice", "both"})
"""Kinds that may be meant; they do not change the exit code."""


@dataclass(frozen=True)
class Finding:
    """One bad sample, one file that makes none, or something that is said of many samples.

    Attributes:
        kind: a key of `KINDS`.
        split: `train` or `val`.
        index: of the sample in its split (of a stream: its position); None for what is of no single sample, or of all.
        where: the file or files, empty where the data set does not name them.
        text: what is wrong with it.
    """

    kind: str
    split: str
    index: int | None
    where: str
    text: str

    @property
    def note(self) -> bool:
        """Whether it may be meant."""
        return self.kind in NOTES


def in_order(findings: Iterable[Finding], splits: Sequence[str]) -> list[Finding]:
    """Sorted by kind, split, index and file, so that the number of workers does not show."""
    kinds = list(KINDS)

    def key(one: Finding) -> tuple[int, int, int, str, str]:
        index = -1 if one.index is None else one.index
        return kinds.index(one.kind), splits.index(one.split), index, one.where, one.text

    return sorted(findings, key=key)
