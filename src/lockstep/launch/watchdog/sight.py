"""What is known of one rank at one moment, as plain values that can travel to another machine."""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from lockstep.launch.watchdog.limits import Limits
from lockstep.trace.progress import WAITING, Entry, Phase, Reading

_FEW = 4


@dataclass(frozen=True)
class Sight:
    """One rank.

    ended: its process is over; done: with the word that its work is complete. stopped: by SIGSTOP.
    marks: what it has marked, None before it has marked anything. silent_s: since its last mark.
    spot: the user's line it is at, `file:line in function`; doing: what the innermost call is; "" unless asked for.
    """

    rank: int
    node: int = 0
    pid: int = 0
    ended: bool = False
    done: bool = False
    stopped: bool = False
    marks: Reading | None = None
    silent_s: float = 0.0
    spot: str = ""
    doing: str = ""

    @property
    def pace_s(self) -> float | None:
        """Seconds of a step, learned from the last ones: most take no longer. None before there are two."""
        if self.marks is None or len(self.marks.steps) < 3:
            return None
        ends = [end for _, end, _ in self.marks.steps[-17:]]
        gaps = sorted(after - before for before, after in pairwise(ends))
        return (gaps[-1] if len(gaps) <= _FEW else gaps[len(gaps) * 3 // 4]) / 1e9

    @property
    def inside(self) -> Entry | None:
        """The collective of the default group that it is in."""
        if self.marks is None or not self.inside_number:
            return None
        return next((entry for entry in self.marks.entries if entry.number == self.marks.inside), None)

    @property
    def inside_number(self) -> int:
        """Which one, 0 for none. What an exception left behind counts only of a rank that has ended by it."""
        if self.marks is None or not (self.ended or self.marks.phase in WAITING):
            return 0
        return self.marks.inside

    def limit_s(self, limits: Limits) -> float:
        """How long it may be silent in what it does now, before that is reported."""
        pace = self.pace_s
        if self.marks is None:
            return limits.start_s
        start_s = min(limits.start_s, limits.deadline_s) if limits.from_start and limits.deadline_s else limits.start_s
        if pace is None:
            return start_s
        phase = self.marks.phase
        learned = limits.step_times * pace + limits.extra_s
        if phase in (Phase.JOIN, Phase.END):
            return max(learned, start_s)
        if phase in (Phase.SAVE, Phase.LOAD):
            return max(learned, limits.save_s)
        if phase == Phase.COMPILE:
            return max(learned, limits.compile_s)
        return max(learned, limits.evaluate_s) if self.marks.evaluating else learned


def to_json(sight: Sight) -> dict[str, Any]:
    """As values that JSON knows; of what is kept, the newest."""
    marks = sight.marks
    if marks is not None:
        newest = replace(marks, entries=marks.entries[-8:], steps=marks.steps[-17:], digests=marks.digests[-4:])
        sight = replace(sight, marks=newest)
    return asdict(sight)


def from_json(values: dict[str, Any], later_s: float = 0.0) -> Sight:
    """Back again; later_s: how long ago it was told."""
    sight = Sight(**{**values, "marks": None})
    if values["marks"] is None:
        return sight
    marks = dict(values["marks"])
    marks["phase"] = Phase(marks["phase"])
    marks["entries"] = tuple(Entry(**entry) for entry in marks["entries"])
    for name in ("steps", "digests"):
        marks[name] = tuple(tuple(item) for item in marks[name])
    return replace(sight, marks=Reading(**marks), silent_s=sight.silent_s + later_s)
