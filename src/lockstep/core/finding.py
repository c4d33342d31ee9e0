"""Laws, places and findings: what a rule says about a script or a run. Plain values."""

from dataclasses import dataclass
from enum import StrEnum


class Law(StrEnum):
    """The four laws of many ranks; the first digit of a rule's code names its law."""

    SAME = "SAME"
    SPLIT = "SPLIT"
    ONCE = "ONCE"
    SCALE = "SCALE"


class Severity(StrEnum):
    """How much a finding matters.

    ERROR: the training is not what it claims to be. DEVIATION: it differs from the single process in a way that people
    choose; it has to be accepted. NOTE: slower or more fragile than need be.
    """

    ERROR = "error"
    DEVIATION = "deviation"
    NOTE = "note"


@dataclass(frozen=True)
class Place:
    """A line of a user's file. path: as the run saw it, absolute where it could be; line: from 1, 0 for none."""

    path: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path

    @staticmethod
    def parse(text: str) -> "Place | None":
        """From `path:line`; None for the empty text."""
        path, _, line = text.rpartition(":")
        if line.isdecimal():
            return Place(path, int(line))
        return Place(text) if text else None


@dataclass(frozen=True)
class Witness:
    """One side of what was seen: a rank (None for all, or the reference), a step (None for none), a place and words."""

    text: str
    rank: int | None = None
    step: int | None = None
    place: Place | None = None


@dataclass(frozen=True)
class Finding:
    """What a rule, or a lemma, found.

    Attributes:
        code: the rule's, `LS113`.
        severity: error, deviation or note.
        seen: one sentence, what happened, with numbers.
        must: one sentence, what has to hold.
        next_step: one sentence, what to do about it.
        witnesses: both sides of the disagreement, or every place that took part; the first is where to look first.
    """

    code: str
    severity: Severity
    seen: str
    must: str
    next_step: str
    witnesses: tuple[Witness, ...] = ()

    @property
    def place(self) -> Place | None:
        """Where to look first: the first witness that has a place."""
        return next((one.place for one in self.witnesses if one.place is not None), None)
