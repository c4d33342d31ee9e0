"""What every rule has: a code, a law, and a pure function from a run to findings."""

from collections.abc import Iterable
from typing import Protocol

from lockstep.core.finding import Finding, Law
from lockstep.trace.trace import Trace


class Rule(Protocol):
    """A module of `lockstep.rules` is a rule.

    CODE: `LS` and three digits, the first names the law (1 SAME, 2 SPLIT, 3 ONCE, 4 SCALE). LAW. NEED: ranks that a
    trace must have. AFTER: codes of rules whose finding explains this one, so that it is left out. The docstring is
    its page: What must hold / Why / How it shows / Fix / Example.
    """

    CODE: str
    LAW: Law
    NEED: int
    __doc__: str | None

    @property
    def AFTER(self) -> tuple[str, ...]:  # noqa: N802
        """Codes."""
        ...

    def dynamic(self, trace: Trace) -> Iterable[Finding]:
        """What this run shows against the rule. No I/O, no torch."""
        ...
