"""What a proof says: its rungs, what each established, and what broke. Plain values, for reports and for code."""

from dataclasses import dataclass, field
from enum import StrEnum

from lockstep.core.finding import Finding, Place, Severity
from lockstep.core.outcome import Exit


class Status(StrEnum):
    """How a rung ended. ABSTAIN: it cannot be judged, and why. ERROR: the program itself did not run."""

    PASS = "PASS"
    FAIL = "FAIL"
    ABSTAIN = "ABSTAIN"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Difference:
    """The first thing that differs between a run and its reference.

    Attributes:
        step: optimizer step, from 0.
        what: `batch`, `input`, `output` (of a module), `loss`, `gradient`, `lr`, `parameter`, `start`.
        name: of the module or parameter, "" for none.
        rank: of the run; the reference is one process.
        seen, wanted: the value in the run and in the reference, as text (a number, a norm, the first elements).
        error: norm of the difference over the norm of the reference (of the whole gradient for a gradient); None
            where it has no meaning.
        place: the user's line.
    """

    step: int
    what: str
    name: str = ""
    rank: int | None = None
    seen: str = ""
    wanted: str = ""
    error: float | None = None
    place: Place | None = None


@dataclass(frozen=True)
class Cause:
    """What explains a difference. confirmed: a run without just this cause had no difference; None: not tried."""

    text: str
    next_step: str
    code: str = ""
    confirmed: bool | None = None


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes:
        name: `one process`, `distributed path`, `two processes`, `partition`, `mirror`, `shard`, `mixed precision`,
            `resume`, `fault`.
        status: how it ended.
        said: what was established, or what broke, or why it cannot be judged; one or two sentences with numbers.
        differences: where it broke, the first first.
        causes: the likely ones, the likeliest first.
        findings: of the rules, over the traces of this rung.
        seconds: that it took.
        covered: an ABSTAIN that a later rung proves instead.
    """

    name: str
    status: Status
    said: str
    differences: tuple[Difference, ...] = ()
    causes: tuple[Cause, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    covered: bool = False


@dataclass(frozen=True)
class Curve:
    """A loss curve: one value an optimizer step. label: `reference`, `2 ranks`. values: NaN where none was seen."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Moment:
    """A mark on the timeline of ranks. start, end: seconds from the beginning of the run. kind: forward, backward,
    step, collective, batch, save."""

    rank: int
    kind: str
    start: float
    end: float
    step: int
    text: str = ""
    place: Place | None = None


@dataclass(frozen=True)
class Share:
    """Who read what in one pass over a loader. ids: (num_ranks) tuples of sample indices in the order of reading.

    complete: every rank read the pass to its end, or every sample was read.
    """

    stream: str
    number: int
    length: int | None
    ids: tuple[tuple[int, ...], ...]
    complete: bool = True


@dataclass(frozen=True)
class Proof:
    """The whole result of `verify`.

    Attributes:
        program: the command line that was judged. reference: what it was compared with.
        num_ranks: ranks of the distributed runs.
        rungs: in order of the ladder; those after a broken one are missing, unless all were asked for.
        accepted: codes of deviations that the user has declared.
        curves, shares, timeline: for pictures; empty where there is nothing to show.
        digests: {what: SHA-256} of the scripts, arguments, and versions that this proof is about.
        sources: {path: text} of the user's files that findings and differences point into.
    """

    program: str
    reference: str
    num_ranks: int
    rungs: tuple[Rung, ...]
    accepted: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    shares: tuple[Share, ...] = ()
    timeline: tuple[Moment, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all rungs, each once, errors first."""
        order = list(Severity)
        once = dict.fromkeys(finding for rung in self.rungs for finding in rung.findings)
        return tuple(sorted(once, key=lambda finding: (order.index(finding.severity), finding.code)))

    @property
    def broken(self) -> Rung | None:
        """The first rung that failed or did not run."""
        return next((rung for rung in self.rungs if rung.status in (Status.FAIL, Status.ERROR)), None)

    @property
    def exit(self) -> Exit:
        """FAILED where a rung failed, UNJUDGED where one could not be judged and no later one proves it, else DONE."""
        if self.broken is not None:
            return Exit.FAILED
        unjudged = not self.rungs or any(rung.status is Status.ABSTAIN and not rung.covered for rung in self.rungs)
        return Exit.UNJUDGED if unjudged else Exit.DONE
