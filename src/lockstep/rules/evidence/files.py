"""Which rank touched which file, and whether the ranks had agreed on an order: who came first, for certain."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.core.finding import Place, Witness
from lockstep.rules.evidence.precedence import Precedence
from lockstep.trace.events import Backward, File, Start
from lockstep.trace.trace import Trace

_WRITES = ("save", "write", "rename")
_READS = ("load", "read")
_TRACKERS = {"wandb", "mlruns", "mlflow.db"}
_WORDS = {
    "save": "saves",
    "write": "writes",
    "rename": "moves a file to",
    "remove": "removes",
    "load": "loads",
    "read": "reads",
}


@dataclass(frozen=True)
class Touch:
    """A rank touched a file. index: of the event among the rank's events. trained: a backward came before it."""

    rank: int
    index: int
    event: File
    trained: bool

    @property
    def path(self) -> str:
        """The file that is there afterwards."""
        return self.event.target if self.event.op == "rename" else self.event.path

    def witness(self, trace: Trace) -> Witness:
        """This side of it, in words."""
        how = "adds to" if self.event.append else _WORDS[self.event.op]
        text = f"{how} {shown(trace, self.path)}"
        return Witness(text, self.rank, self.event.step, Place.parse(self.event.at))


def writes(trace: Trace) -> dict[str, list[Touch]]:
    """By path, every time that it was written; rank by rank."""
    return _touches(trace, _WRITES)


def reads(trace: Trace) -> dict[str, list[Touch]]:
    """By path, every time that it was read (torch.load always, other readings only the first)."""
    return _touches(trace, _READS)


def removals(trace: Trace) -> dict[str, list[Touch]]:
    """By path, every time that it was removed."""
    return _touches(trace, ("remove",))


def _touches(trace: Trace, ops: Sequence[str]) -> dict[str, list[Touch]]:
    found = defaultdict(list)
    for rank in trace.ranks:
        trained = False
        for index, event in enumerate(rank.events):
            trained = trained or isinstance(event, Backward)
            if isinstance(event, File) and event.op in ops:
                touch = Touch(rank.rank, index, event, trained)
                if touch.path:
                    found[touch.path].append(touch)
    return found


def locked(trace: Trace) -> bool:
    """Whether several ranks open the same lock file: they then have an order that a trace does not show."""
    return any(
        path.endswith((".lock", ".lck")) and len({touch.rank for touch in touches}) > 1
        for path, touches in writes(trace).items()
    )


def rivals(touches: Sequence[Touch], order: Precedence) -> list[Touch]:
    """The first touch of each rank that may have met another rank's; [] where all came in turn."""
    met: dict[int, Touch] = {}
    for first, second in _pairs(touches):
        if order.together(first, second):
            met.setdefault(first.rank, first)
            met.setdefault(second.rank, second)
    return [met[rank] for rank in sorted(met)]


def _pairs(touches: Sequence[Touch]) -> Iterator[tuple[Touch, Touch]]:
    """Touches of different ranks; a file that is written at each step has too many pairs to look at all."""
    few: Mapping[int, list[Touch]] = defaultdict(list)
    for touch in touches:
        if len(few[touch.rank]) < 64:
            few[touch.rank].append(touch)
    ranks = sorted(few)
    for place, one in enumerate(ranks):
        for other in ranks[place + 1 :]:
            for first in few[one]:
                yield from ((first, second) for second in few[other])


def prepared(touches: Sequence[Touch], readings: Sequence[Touch]) -> bool:
    """Whether a file was written before the training, and read afterwards by a rank that wrote it or by another."""
    if any(touch.trained for touch in touches):
        return False
    wrote: dict[int, int] = {}
    for touch in touches:
        wrote.setdefault(touch.rank, touch.index)
    return any(one.rank not in wrote or one.index > wrote[one.rank] for one in readings)


def of_each_node(trace: Trace, touches: Sequence[Touch]) -> bool:
    """Whether these ranks are exactly the first ranks of several nodes."""
    start = _start(trace)
    size = start.ranks_per_node if start is not None and start.launch == "torchrun" else 0
    if not 0 < size < trace.num_ranks:
        return False
    ranks = sorted({touch.rank for touch in touches})
    return len(ranks) > 1 and all(rank % size == 0 for rank in ranks)


def shown(trace: Trace, path: str) -> str:
    """A path as the user knows it: from the working directory where it lies below it."""
    start = _start(trace)
    cwd = start.cwd if start is not None else ""
    return str(Path(path).relative_to(cwd)) if cwd and Path(path).is_relative_to(cwd) else path


def _start(trace: Trace) -> Start | None:
    """None where the rank was killed before it could tell."""
    return next(trace.ranks[0].of(Start), None)


def by_line(found: Sequence[tuple[str, Sequence[Touch]]]) -> list[list[tuple[str, Sequence[Touch]]]]:
    """What the same line of the script does to several files belongs together."""
    lines: dict[str, list[tuple[str, Sequence[Touch]]]] = {}
    for path, touches in found:
        lines.setdefault(touches[0].event.at, []).append((path, touches))
    return list(lines.values())


def named(trace: Trace, paths: Sequence[str]) -> str:
    """The first path, and how many more there are."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return shown(trace, paths[0]) + more


def ranks_of(touches: Sequence[Touch]) -> str:
    """`ranks 0 and 1`, `rank 3`."""
    ranks = [str(rank) for rank in sorted({touch.rank for touch in touches})]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks[:-1])} and {ranks[-1]}"


def contested(trace: Trace) -> Iterator[tuple[str, list[Touch], bool]]:
    """Paths that several ranks write with nothing that orders them: the path, who, and whether it is prepared data.

    The files of a tracker that all ranks have started are the tracker's matter.
    """
    several = {
        path: touches
        for path, touches in writes(trace).items()
        if len({touch.rank for touch in touches}) > 1 and _TRACKERS.isdisjoint(Path(path).parts)
    }
    if not several or locked(trace):
        return
    order, readings = Precedence(trace), reads(trace)
    for path, touches in several.items():
        if found := rivals(touches, order):
            yield path, found, prepared(touches, readings.get(path, ()))
