"""What every report says: the verdict, the one thing to do next, and the names of differences, causes and witnesses."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.core.outcome import Exit
from lockstep.core.proof import Cause, Difference, Proof, Rung, Status

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """The text with what a terminal or an editor would obey instead of show written out, as `\\x1b`.

    Control characters, halves of characters (a path that is no UTF-8) and marks that turn the direction of reading;
    line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if _shows(one) else one.encode("unicode_escape").decode("ascii") for one in text)


def _shows(one: str) -> bool:
    return one in "\n\t" or (unicodedata.category(one) not in ("Cc", "Cs") and one not in _BIDI)


def status(proof: Proof) -> Status:
    """One word for the whole proof."""
    if proof.broken is not None:
        return proof.broken.status
    return Status.ABSTAIN if proof.exit is Exit.UNJUDGED or not proof.rungs else Status.PASS


def verdict(proof: Proof) -> str:
    """One sentence: what has been proven, or what broke."""
    who = f"{proof.program} on {count(proof.num_ranks, 'rank')}"
    if not proof.rungs:
        return f"Nothing is known about {who}: no rung was run."
    if proof.broken is not None:
        if proof.broken.status is Status.ERROR:
            return f"{proof.program} did not run: the ladder ends at '{proof.broken.name}'."
        return f"{who} is not the same training as {proof.reference}: '{proof.broken.name}' is broken."
    if status(proof) is Status.ABSTAIN:
        names = " and ".join(f"'{rung.name}'" for rung in _unjudged(proof))
        return f"Nothing failed, but {names} could not be judged, so {who} is not proven."
    used = sorted({finding.code for finding in proof.findings if finding.code in proof.accepted})
    but = f", but for the deviations you accept ({', '.join(used)})" if used else ""
    return f"{who} is the same training as {proof.reference}{but}."


def next_step(proof: Proof) -> str:
    """The one thing to do next: from the first broken rung, else from the first that could not be judged."""
    if proof.broken is not None:
        return _next_of(proof.broken) or _any_next(proof.findings) or _look_at(proof.broken)
    for rung in _unjudged(proof):
        return _next_of(rung) or f"remove what kept '{rung.name}' from being judged: {rung.said}"
    if not proof.rungs:
        return "run the ladder."
    open_ = _any_next([finding for finding in proof.findings if finding.code not in proof.accepted])
    if open_:
        return f"nothing has to change. Worth doing: {open_}"
    return "nothing. The proof holds until the script, its arguments or a version changes."


def breaks(proof: Proof) -> list[Rung]:
    """The rungs that failed or did not run, the first first."""
    return [rung for rung in proof.rungs if rung.status in (Status.FAIL, Status.ERROR)]


def _unjudged(proof: Proof) -> list[Rung]:
    return [rung for rung in proof.rungs if rung.status is Status.ABSTAIN and not rung.covered]


def _next_of(rung: Rung) -> str:
    cause = likeliest(rung.causes)
    if cause is not None and cause.next_step:
        return cause.next_step
    return _any_next(by_weight(rung.findings))


def _any_next(findings: Sequence[Finding]) -> str:
    return next((finding.next_step for finding in findings if finding.next_step), "")


def _look_at(rung: Rung) -> str:
    place = next((one.place for one in rung.differences if one.place is not None), None)
    return f"look at {place}, where the first difference is seen." if place else f"read what '{rung.name}' says."


def likeliest(causes: Sequence[Cause]) -> Cause | None:
    """The first confirmed cause, else the first that was not refuted."""
    left = [cause for cause in causes if cause.confirmed is not False]
    return next((cause for cause in left if cause.confirmed), left[0] if left else None)


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first; within a severity as given."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def confirmed(cause: Cause) -> str:
    """What is known of a cause, in words."""
    known = {True: "confirmed: without it there is no difference", False: "refuted: without it the difference stays"}
    return "not tried" if cause.confirmed is None else known[cause.confirmed]


def where_it_differs(difference: Difference) -> str:
    """`step 3, gradient of layers.1.weight, rank 1`."""
    what = f"{difference.what} of {difference.name}" if difference.name else difference.what
    rank = "" if difference.rank is None else f", rank {difference.rank}"
    return f"step {difference.step}, {what}{rank}"


def side(witness: Witness) -> str:
    """`rank 1, step 3`; "" for what concerns all ranks at no step."""
    parts = (("rank", witness.rank), ("step", witness.step))
    return ", ".join(f"{name} {number}" for name, number in parts if number is not None)


def shown(place: Place, root: str = "") -> str:
    """`path:line`, relative to root where it lies below it."""
    return clean(str(Place(relative(place.path, root), place.line)))


def relative(path: str, root: str) -> str:
    """The path from root, with `/`; as it is where it lies elsewhere or root is empty."""
    if root and PurePath(path).is_relative_to(root):
        return PurePath(path).relative_to(root).as_posix()
    return path


def count(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`, `60,000 samples`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def tally(findings: Iterable[Finding]) -> str:
    """`1 error, 2 notes`; "" for none."""
    numbers = Counter(finding.severity for finding in findings)
    return ", ".join(count(numbers[severity], severity.value) for severity in Severity if numbers[severity])


def error_text(difference: Difference) -> str:
    """The relative error in words; "" where it has no meaning."""
    return "" if difference.error is None else f"relative error {difference.error:.3g}"


def seconds_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100 or not math.isfinite(seconds):
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
