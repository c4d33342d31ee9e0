"""What a scan came to, as values."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.runtime.scanning.build import Build, shape_text
from lockstep.runtime.scanning.finding import KINDS, Finding
from lockstep.runtime.scanning.gather import Seen, Table


@dataclass(frozen=True)
class Split:
    """One split in numbers.

    Attributes:
        name: `train` or `val`.
        length: its samples, None for a stream.
        read: samples that were tried.
        bad: of these, samples with a finding that is no note.
        num_bytes: of all samples that could be read.
        sizes: bytes of the smallest, the median and the largest sample; None where none could be read.
        usual: leaves of the most frequent build: (path, type, shape).
        builds: how many different builds there are.
        counts: labels by class, None where the recipe names no labels.
        ignored: labels with the ignored value.
    """

    name: str
    length: int | None
    read: int
    bad: int
    num_bytes: int
    sizes: tuple[int, int, int] | None
    usual: tuple[tuple[str, str, str], ...]
    builds: int
    counts: tuple[int, ...] | None
    ignored: int


def split_of(seen: Seen, table: Table, usual: Build | None, length: int | None, findings: Sequence[Finding]) -> Split:
    """One split in numbers."""
    sizes = sorted(table.sizes.tolist())
    mine = [one for one in findings if one.split == seen.split and not one.note]
    bad = {one.index for one in mine if one.index is not None}
    all_bad = any(one.index is None and one.kind != "stray" for one in mine)
    leaves = () if usual is None else zip(usual.leaves, usual.shapes, strict=True)
    return Split(
        name=seen.split,
        length=length,
        read=seen.done,
        bad=seen.done if all_bad else len(bad),
        num_bytes=sum(sizes),
        sizes=(sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        usual=tuple((path, kind, shape_text(shape)) for (path, kind), shape in leaves),
        builds=len(set(table.numbers.tolist())),
        counts=None if seen.counts is None else tuple(seen.counts.tolist()),
        ignored=seen.ignored,
    )


@dataclass(frozen=True)
class Result:
    """A scan.

    Attributes:
        recipe: its name.
        splits: what was read.
        findings: in the order of a report.
        seconds: how long it took.
        workers: how many processes read.
        stopped: why it did not come to its end, empty where it did.
    """

    recipe: str
    splits: tuple[Split, ...]
    findings: tuple[Finding, ...]
    seconds: float
    workers: int
    stopped: str = ""

    @property
    def errors(self) -> list[Finding]:
        """Findings that are no notes."""
        return [one for one in self.findings if not one.note]

    def values(self) -> dict[str, Any]:
        """The whole of it for JSON."""
        kinds = Counter(one.kind for one in self.findings)
        read, amount = sum(one.read for one in self.splits), sum(one.num_bytes for one in self.splits)
        return {
            "format": 1,
            "recipe": self.recipe,
            "complete": not self.stopped,
            "stopped": self.stopped or None,
            "found": len(self.errors),
            "notes": len(self.findings) - len(self.errors),
            "kinds": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
            "workers": self.workers,
            "seconds": round(self.seconds, 3),
            "samples_per_s": round(read / self.seconds, 1),
            "bytes_per_s": round(amount / self.seconds),
            "splits": [_split_values(one) for one in self.splits],
            "findings": [
                {
                    "kind": one.kind,
                    "note": one.note,
                    "split": one.split,
                    "index": one.index,
                    "files": one.where or None,
                    "text": one.text,
                }
                for one in self.findings
            ],
        }


def _split_values(one: Split) -> dict[str, Any]:
    return {
        "split": one.name,
        "samples": one.length,
        "read": one.read,
        "bad": one.bad,
        "bytes": one.num_bytes,
        "sample_bytes": None if one.sizes is None else dict(zip(("min", "median", "max"), one.sizes, strict=True)),
        "usual": [{"leaf": path, "type": kind, "shape": shape} for path, kind, shape in one.usual],
        "different_builds": one.builds,
        "labels": None if one.counts is None else list(one.counts),
        "ignored_labels": one.ignored,
    }
