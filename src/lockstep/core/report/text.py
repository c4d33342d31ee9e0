"""The proof in a terminal: the verdict, the next thing to do, the ladder, the break; at most a screenful."""

import textwrap
from collections.abc import Iterator

from lockstep.core.finding import Finding, Severity, Witness
from lockstep.core.proof import Cause, Proof, Rung, Status
from lockstep.core.report import words
from lockstep.core.report.excerpt import source_line
from lockstep.core.report.words import clean, count

MORE = "--html FILE or --json FILE writes all of it"
_SCREEN = 40  # lines; the first finding is shown even where it goes beyond
_COLOURS = {
    Status.PASS: "32",
    Status.FAIL: "1;31",
    Status.ABSTAIN: "33",
    Status.ERROR: "1;31",
    Severity.ERROR: "31",
    Severity.DEVIATION: "33",
    Severity.NOTE: "36",
}


def text(proof: Proof, colour: bool = False, width: int = 100, root: str = "", more: str = MORE) -> str:
    """The report for a terminal, without a line end at its end.

    Args:
        proof: the result of `verify`.
        colour: whether to use ANSI colours; every word is there without them.
        width: columns to wrap at, at least 40. A path is never wrapped.
        root: folder that paths are shown relative to; "" shows them as they are.
        more: what tells where the rest is.
    """
    return _Screen(proof, colour, max(width, 40), root).report(more)


class _Screen:
    """Lines that have been written so far, and how to write more."""

    def __init__(self, proof: Proof, colour: bool, width: int, root: str) -> None:
        self.proof, self.colour, self.width, self.root = proof, colour, width, root
        self.lines: list[str] = []

    def report(self, more: str) -> str:
        state = words.status(self.proof)
        self.wrapped(f"{state}: ", words.verdict(self.proof), paint=_COLOURS[state])
        self.wrapped("Next: ", words.next_step(self.proof), paint="1")
        self.ladder()
        broken = words.breaks(self.proof)
        for rung in broken:
            self.broken(rung)
        left = self.findings()
        rest = [f"{words.tally(left)} not shown"] if left else []
        rest += _counted(sum(max(len(rung.differences) - 1, 0) for rung in broken), "later difference")
        rest += _counted(sum(len(rung.causes) - len(self.causes(rung)) for rung in broken), "other cause")
        if rest:
            self.lines.append("")
            self.wrapped("", f"{', '.join(rest)}: {more}.")
        return "\n".join(self.lines)

    def ladder(self) -> None:
        self.lines.append("")
        wide = max((len(rung.name) for rung in self.proof.rungs), default=0)
        for rung in self.proof.rungs:
            said = rung.said
            if rung.covered and rung.status is Status.ABSTAIN:
                said = f"{said.rstrip(chr(46))}. A later rung proves it instead."
            lead = f"  {rung.status:<7}  {clean(rung.name):<{wide}}  "
            self.wrapped(lead, said, paint=_COLOURS[rung.status], most=4 if rung is self.proof.broken else 2)

    def broken(self, rung: Rung) -> None:
        if rung.differences:
            first = rung.differences[0]
            at = f" ({words.shown(first.place, self.root)})" if first.place else ""
            self.lines.append("")
            self.wrapped("First difference: ", words.where_it_differs(first) + at, paint="1")
            source = source_line(self.proof.sources, first.place)
            if source and first.place:
                self.cut(f"    {first.place.line} | {source}")
            if first.seen or first.wanted:
                self.cut(f"  run        {clean(first.seen)}")
                self.cut(f"  reference  {clean(first.wanted)}")
            if first.error is not None:
                self.lines.append(f"  {words.error_text(first)}")
        elif rung.causes:
            self.lines.append("")
        for cause in self.causes(rung):
            code = f" {cause.code}" if cause.code else ""
            self.wrapped(f"  Cause{code} ({words.confirmed(cause).partition(':')[0]}): ", cause.text, most=3)

    def causes(self, rung: Rung) -> list[Cause]:
        """The likeliest, and the next one that was not refuted."""
        first = words.likeliest(rung.causes)
        others = [cause for cause in rung.causes if cause is not first and cause.confirmed is not False]
        return ([first] if first else []) + others[:1]

    def findings(self) -> list[Finding]:
        """Those that fit; returns those that do not."""
        left = list(self.proof.findings)
        while left:
            before = len(self.lines)
            self.lines.append("")
            self.finding(left[0])
            if len(self.lines) > _SCREEN and left[0] is not self.proof.findings[0]:
                del self.lines[before:]
                break
            left.pop(0)
        return left

    def finding(self, finding: Finding) -> None:
        accepted = ", accepted" if finding.code in self.proof.accepted else ""
        lead = f"{finding.code} {finding.severity}{accepted}: "
        self.wrapped(lead, finding.seen, paint=_COLOURS[finding.severity], most=4)
        self.wrapped("  Must hold: ", finding.must, most=2)
        if finding.next_step != words.next_step(self.proof):
            self.wrapped("  Next: ", finding.next_step, most=3)
        shown = finding.witnesses[:2]
        for number, witness in enumerate(shown):
            again = number > 0 and witness.place == shown[0].place
            self.witness(witness, quote=not again)
        if len(finding.witnesses) > 2:
            self.lines.append(f"  and {count(len(finding.witnesses) - 2, 'more place')}")

    def witness(self, witness: Witness, quote: bool) -> None:
        where = words.shown(witness.place, self.root) if witness.place else ""
        lead = ", ".join(part for part in (words.side(witness), where) if part)
        self.wrapped(f"  {lead}: " if lead else "  ", witness.text, most=2)
        source = source_line(self.proof.sources, witness.place) if quote else ""
        if source and witness.place:
            self.cut(f"    {witness.place.line} | {source}")

    def wrapped(self, lead: str, body: str, paint: str = "", most: int = 6) -> None:
        """A paragraph of at most `most` lines; those after the first are indented, below the body if that is near."""
        lead = clean(lead)
        if len(lead) > self.width - 20:  # a long path stays whole, so that it can be clicked
            self.lines.append(lead.rstrip())
            lead = " " * (4 + _indent(lead))
        columns = len(lead) if lead.startswith("  ") and len(lead) <= self.width // 3 else 2 + _indent(lead)
        lines = textwrap.wrap(
            " ".join(clean(body).split()),
            self.width,
            initial_indent=lead,
            subsequent_indent=" " * columns,
            break_on_hyphens=False,
            max_lines=most,
            placeholder=" ...",
        ) or [lead.rstrip()]
        if paint and self.colour:
            end = len(lead.rstrip())
            lines[0] = f"\x1b[{paint}m{lines[0][:end]}\x1b[0m{lines[0][end:]}"
        self.lines += lines

    def cut(self, line: str) -> None:
        """One line, its end left out where it is too long."""
        line = " ".join(line.split("\n"))
        self.lines.append(line if len(line) <= self.width else f"{line[: self.width - 4]} ...")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _counted(number: int, noun: str) -> Iterator[str]:
    if number > 0:
        yield count(number, noun)
