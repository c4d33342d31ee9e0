"""The watch over the ranks while they run: reads the board, asks the kernel, reports what does not advance."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.core.words import ranks_text
from lockstep.launch.record import Failure, done_at, stack_file
from lockstep.launch.stacks import Stack, at_work, doing, read_stacks, spot, users_frames, worker_stacks
from lockstep.launch.watchdog import words
from lockstep.launch.watchdog.assess import Alarm, assess, cause, stopped
from lockstep.launch.watchdog.limits import Limits
from lockstep.launch.watchdog.notices import notices
from lockstep.launch.watchdog.sight import Sight, from_json, to_json
from lockstep.trace.progress import Board, Phase

if TYPE_CHECKING:
    from lockstep.launch.nodes.meeting import Meeting

_STOPPED_S = 0.3
_SHARE_S = 0.5
_NOTICE_S = 1.0
_STACKS_S = 2.0
_REMOTE_S = 2.5
_PAUSED_S = 2.0
"""Who has not looked for so long was stopped himself (Ctrl-Z, a suspended job): silence counts from then on."""
_SPOTS_S = 5.0
_FRESH_S = 3.0
_LOOKED_INTO = 4


@dataclass(frozen=True)
class Seen:
    """A rank of this machine, as its launcher sees it."""

    rank: int
    pid: int
    ended: bool
    done: bool


class Watchdog:
    """Watches the ranks of one machine, and through the meeting hears of those of the others.

    Args:
        limits: how long a rank may be silent.
        board: where the ranks of this machine mark their progress.
        folder: where their stack files are.
        meeting: the other machines.
        say: takes a block of text for the user.
    """

    def __init__(
        self, limits: Limits, board: Board, folder: Path, meeting: "Meeting", say: Callable[[str], None]
    ) -> None:
        self._limits, self._board, self._folder, self._meeting, self._say = limits, board, folder, meeting, say
        self.wrong: list[str] = []
        self._told: set[str] = set()
        self._stopped: dict[int, float] = {}
        self._spots: dict[int, tuple[str, str]] = {}
        self._started = self._polled_at = time.monotonic()
        self._awake_since = self._alarm_since = self._shared_at = self._noticed_at = 0.0
        self._spots_at = -_SPOTS_S
        self._oldest_s = 0.0
        self._parsed: dict[int, tuple[str, list[dict[str, Any]]]] = {}
        self._reported: Alarm | None = None
        self._sights: list[Sight] = []

    def poll(self, seen: Sequence[Seen]) -> Failure | None:
        """Look once; to be called about ten times a second.

        Returns: what ended the run, once that is certain.
        """
        now = time.monotonic()
        if now - self._polled_at > _PAUSED_S:
            self._awake_since = now
        self._polled_at = now
        mine = [self._look(index, rank, now) for index, rank in enumerate(seen)]
        self._sights = self._with_others(mine, now)
        alarm = assess(self._sights, self._limits) if self._complete() else stopped(mine)
        if alarm is None or self._is_reported(alarm):
            self._calm(alarm)
            return None
        self._alarm_since = self._alarm_since or now
        if now - self._spots_at > _SPOTS_S:
            self._spots_at = now
            self._spots = self._read_spots(seen, alarm)
            self._share(mine, now, at_once=True)
        self._sights = [self._with_spot(sight) for sight in self._sights]
        if not self._ready(alarm, now):
            return None
        if alarm.certain:
            return self._failure(alarm)
        self._reported = alarm
        if self._speaks:
            self._say(words.report(alarm, self._sights, self._limits))
        return None

    def explain(self, seen: Sequence[Seen]) -> Failure | None:
        """A cause that only the board shows, once a rank has failed."""
        now = time.monotonic()
        self._sights = self._with_others([self._look(index, rank, now) for index, rank in enumerate(seen)], now)
        if self._speaks and self._complete():
            self._notice()
        alarm = cause(self._sights)
        return self._failure(alarm) if alarm is not None else None

    def activities(self) -> Mapping[int, str]:
        """What each rank did when it was last looked at, in half a sentence."""
        return {sight.rank: words.activity(sight) for sight in self._sights if sight.marks is not None}

    def _look(self, index: int, seen: Seen, now: float) -> Sight:
        marks = self._board.read(index)
        known = marks if marks.beats else None
        stopped = not seen.ended and self._is_stopped(seen.pid, now)
        last = self._started if known is None else known.beat_ns / 1e9
        silent = max(0.0, now - max(last, self._awake_since))
        text, does = (done_at(self._folder, seen.rank), "") if seen.done else self._spots.get(seen.rank, ("", ""))
        return Sight(seen.rank, self._meeting.node, seen.pid, seen.ended, seen.done, stopped, known, silent, text, does)

    def _is_stopped(self, pid: int, now: float) -> bool:
        """For longer than a moment: whoever stops and continues a process has his reasons."""
        state = ""
        with suppress(OSError):
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            )
        if state != "T":
            self._stopped.pop(pid, None)
            return False
        return now - self._stopped.setdefault(pid, now) > _STOPPED_S

    def _with_others(self, mine: list[Sight], now: float) -> list[Sight]:
        if self._meeting.num_nodes == 1:
            return mine
        self._share(mine, now)
        others: list[Sight] = []
        heard = self._meeting.heard()
        self._oldest_s = max((age_s for age_s, _ in heard.values()), default=0.0)
        for node, (age_s, text) in heard.items():
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # of another build: not known
                others += [from_json(values, age_s) for values in self._values(node, text)]
        return sorted(mine + others, key=lambda sight: sight.rank)

    def _values(self, node: int, text: str) -> list[dict[str, Any]]:
        """What another machine has told; the same text is read once."""
        known = self._parsed.get(node)
        if known is None or known[0] != text:
            known = self._parsed[node] = (text, json.loads(text) if text else [])
        return known[1]

    @property
    def _speaks(self) -> bool:
        """Whether this launcher speaks for all: the first whose ranks still run."""
        alive = [sight.node for sight in self._sights if not sight.ended]
        return self._meeting.node == min(alive, default=0)

    def _share(self, mine: Sequence[Sight], now: float, at_once: bool = False) -> None:
        if self._meeting.num_nodes > 1 and (at_once or now - self._shared_at > _SHARE_S):
            self._shared_at = now
            self._meeting.tell(json.dumps([to_json(self._with_spot(sight)) for sight in mine]))

    def _complete(self) -> bool:
        """Whether every machine has told of its ranks, and not long ago: a cut link is the link's affair."""
        if self._oldest_s > _FRESH_S:
            return False
        return len({sight.node for sight in self._sights}) == self._meeting.num_nodes

    def _is_reported(self, alarm: Alarm) -> bool:
        return self._reported is not None and not alarm.certain and bool({*alarm.ranks} & {*self._reported.ranks})

    def _calm(self, alarm: Alarm | None) -> None:
        if alarm is None:
            if self._reported is not None and self._speaks and not any(s.ended for s in self._sights):
                who = ranks_text(self._reported.ranks).capitalize()
                self._say(f"{who} went on after {self._reported.silent_s:.0f} s or more.")
            self._reported, self._alarm_since, self._spots, self._spots_at = None, 0.0, {}, -_SPOTS_S
        now = time.monotonic()
        if self._speaks and now - self._noticed_at > _NOTICE_S and self._complete():
            self._noticed_at = now
            self._notice()

    def _notice(self) -> None:
        for notice in notices(self._sights):
            if notice.key not in self._told:
                self._told.add(notice.key)
                self._say(notice.text)
                if notice.wrong:
                    self.wrong.append(notice.text)

    def last_look(self, seen: Sequence[Seen]) -> None:
        """After the end: what was marked since the last look may still be worth a word."""
        now = time.monotonic()
        mine = [self._look(index, rank, now) for index, rank in enumerate(seen)]
        self._sights = self._with_others(mine, now)
        self._share(mine, now, at_once=True)
        if self._speaks and self._complete():
            self._notice()

    def _ready(self, alarm: Alarm, now: float) -> bool:
        """Whether the lines of all ranks are known, or have been waited for long enough."""
        if self._meeting.num_nodes == 1:
            return True
        unknown = [sight for sight in self._sights if not sight.spot and not sight.ended]
        return not unknown or now - self._alarm_since > _REMOTE_S

    def _with_spot(self, sight: Sight) -> Sight:
        text, does = self._spots.get(sight.rank, (sight.spot, sight.doing))
        if sight.done:
            return sight
        return replace(sight, spot=text, doing=does)

    def _read_spots(self, seen: Sequence[Seen], alarm: Alarm) -> dict[int, tuple[str, str]]:
        alive = [one for one in seen if not one.ended]
        files = {one.pid: stack_file(self._folder, one.rank) for one in alive}
        stacks = read_stacks([one.pid for one in alive], _STACKS_S, files)
        looked_into = alarm.ranks[:_LOOKED_INTO]
        return {
            one.rank: self._described(one, stacks[one.pid], files[one.pid], one.rank in looked_into) for one in alive
        }

    def _described(self, seen: Seen, stack: Stack, file: Path, with_workers: bool) -> tuple[str, str]:
        """Line and activity; for a rank that waits for its loader's workers, those of the worker that is at work."""
        place, does = spot(stack) if users_frames(stack) else "", doing(stack)
        sight = next((sight for sight in self._sights if sight.rank == seen.rank), None)
        if with_workers and sight and sight.marks and sight.marks.phase in (Phase.DATA, Phase.LOAD):
            found = worker_stacks(seen.pid, _STACKS_S / 2, file)
            busy = [(number, one) for number, one in enumerate(found.values()) if one.source and at_work(one)]
            if busy:
                number, one = busy[0]
                waits = f"; the rank waits for it in {place}" if place else ""
                place, does = spot(one), f"its loader's worker {number} {doing(one)}{waits}"
        return place or ("" if does else spot(stack)), does

    def _failure(self, alarm: Alarm) -> Failure:
        first = alarm.ranks[0]
        return Failure(
            rank=first,
            kind="stall",
            message=f"{ranks_text(alarm.ranks).capitalize()} {words.headline(alarm, self._sights)}",
            where=words.where(alarm, self._sights),
            phase="",
            traceback="",
            time_ns=0,  # before everything that follows from it
            exit_code=1,
            others=words.others(alarm, self._sights),
            advice=words.advice(alarm, self._sights),
        )
