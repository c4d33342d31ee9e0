"""The other machines of a launch, as one launcher sees them while its ranks run."""

import math
import time
from collections.abc import Callable
from contextlib import suppress

from lockstep.launch import report
from lockstep.launch.nodes.meeting import Meeting
from lockstep.launch.record import Failure
from lockstep.launch.report import Report
from lockstep.launch.say import say

_POLL_S = 0.2
_PAUSE_S = 0.02
_WAIT_S = 5.0
_WARN_S = 10.0
_PAUSED_S = 3.0
"""Who has not looked for so long was stopped himself (Ctrl-Z, a suspended job): silence counts from then on."""


class Link:
    """Asks, while the ranks of this machine run, whether the others still do.

    Args:
        meeting: the machines. attempt: of this launch. link_s: seconds of silence after which one is lost.
        until: the caller's own question; the first text that is not "" ends the ranks.
    """

    def __init__(self, meeting: Meeting, attempt: int, link_s: float, until: Callable[[], str] | None) -> None:
        self._meeting, self._attempt, self._link_s, self._until = meeting, attempt, link_s, until
        self.cut = ""
        self.alarm: Failure | None = None
        self._asked_at, self._awake_since = time.monotonic(), 0.0
        self._warned: set[int] = set()

    def cut_short(self) -> str:
        """Why the ranks of this machine must end now; "" while they need not."""
        if self._until is not None and (cut := self._until()):
            self.cut = cut
            return cut
        now = time.monotonic()
        if self._meeting.num_nodes == 1 or now - self._asked_at < _POLL_S:
            return ""
        if now - self._asked_at > _PAUSED_S:
            self._awake_since = now
        self._asked_at = now
        if any(not one.well for one in self._finished(0.0)):
            return "another machine has failed"
        return self._lost()

    def reports(self, well: bool, stopped: Callable[[], bool], cut_off: bool = False) -> list[Report]:
        """The reports of the other machines.

        Args:
            well: the ranks of this machine have done their work, so the others may take their time.
            stopped: whether a signal ends the waiting.
            cut_off: the ranks here know of no cause but a lost connection: a machine that is gone is the cause.
        """
        count = self._meeting.num_nodes - 1
        deadline = time.monotonic() + _WAIT_S
        found = self._finished(0.0)
        while len(found) < count and not stopped() and (well or time.monotonic() < deadline):
            found = self._finished(_POLL_S)
            if any(not one.well for one in found):
                well = False
            if (well or cut_off) and self._lost():
                break
            time.sleep(_PAUSE_S)  # nobody is waited for who is gone
            deadline = deadline if not well else time.monotonic() + _WAIT_S
        if self.alarm is not None:
            found.append(Report(alarm=self.alarm))
        return found

    def _finished(self, wait_s: float) -> list[Report]:
        found = []
        for text in self._meeting.finished(self._attempt, wait_s).values():
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # of another build: unknown
                found.append(report.from_text(text))
        return found

    def _lost(self) -> str:
        """A machine that has not been heard for too long, in words; it is told of earlier."""
        over = self._meeting.finished(self._attempt, 0.0)
        for node, (silent_s, _) in self._meeting.heard().items():
            if node in over:
                continue
            if not math.isinf(silent_s) and self._awake_since:
                silent_s = min(silent_s, time.monotonic() - self._awake_since)
            if silent_s <= min(_WARN_S, self._link_s / 2):
                if node in self._warned:
                    self._warned.discard(node)
                    say(f"Node {node} is heard again.")
                continue
            gone = math.isinf(silent_s)
            text = f"Node {node} is gone" if gone else f"Node {node} has not been heard for {silent_s:.0f} s"
            if silent_s > self._link_s:
                self.alarm = self._failure(text, gone)
                return text
            if node not in self._warned:
                self._warned.add(node)
                say(f"{text}: the link is down, or the machine is. The run is ended after {self._link_s:.0f} s.")
        return ""

    def _failure(self, text: str, gone: bool) -> Failure:
        why = "its launcher or the machine has died" if gone else "the link is down, or the machine is"
        advice = "check the machine and the link between the two (`ping`, `ip link`); resume from the last checkpoint"
        return Failure(-1, "stall", f"{text}: {why}", "", "", "", 0, 1, advice=advice)
