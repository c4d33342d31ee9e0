"""The proof as one HTML page that needs nothing else: no script, no font, no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from lockstep.core.finding import Finding, Law, Place, Witness
from lockstep.core.proof import Difference, Proof, Rung
from lockstep.core.report import curves, partition, timeline, words
from lockstep.core.report.excerpt import Line, excerpt
from lockstep.core.report.svg import Figure
from lockstep.core.report.words import clean, relative

Rules = Mapping[str, tuple[str, str]]
_OPEN = 12  # findings that are unfolded
_LAWS = dict(zip("1234", Law, strict=True))


def html(proof: Proof, rules: Rules | None = None, root: str = "") -> str:
    """The whole page. Everything that comes from the proof is escaped.

    Args:
        proof: the result of `verify`.
        rules: {code: (name, docstring)}, for the name of a rule and its page below a finding.
        root: folder that paths are shown relative to; "" shows them as they are.
    """
    import jinja2  # comes with torch; whoever wants no page does not need it

    folder = files(__package__)
    templates = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css")}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters["opened"] = lambda text: text[:1].upper() + text[1:]  # `capitalize` would lower the rest
    return environment.get_template("page.html").render(_values(proof, rules or {}, root)) + "\n"


@dataclass(frozen=True)
class Side:
    """One side of a finding: the words, where, and the lines of source around it (() where they are not known)."""

    who: str
    where: str
    text: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Card:
    """A finding as the page shows it. sides: those beside each other; others: the rest, without source."""

    finding: Finding
    law: str
    name: str
    page: str
    accepted: bool
    sides: tuple[Side, ...]
    others: tuple[Side, ...]


def _values(proof: Proof, rules: Rules, root: str) -> dict[str, Any]:
    """What the template sees."""
    broken = proof.broken
    mark = broken.differences[0].step if broken is not None and broken.differences else None
    cards = [_card(proof, finding, rules, root) for finding in proof.findings]
    return {
        "proof": proof,
        "words": words,
        "state": words.status(proof),
        "verdict": words.verdict(proof),
        "next": words.next_step(proof),
        "broken": broken,
        "breaks": [_break(proof, rung) for rung in words.breaks(proof)],
        "where": lambda place: words.shown(place, root),
        "cards": cards[:_OPEN],
        "more_cards": cards[_OPEN:],
        "tally": words.tally(proof.findings) or "none",
        "curves": _safe(curves.figures(proof.curves, mark)),
        "shares": _safe(partition.figures(proof.shares, _split_is_suspect(proof))),
        "timeline": _safe(timeline.figures(proof.timeline, mark, root)),
        "relative": lambda path: relative(path, root),
    }


def _break(proof: Proof, rung: Rung) -> tuple[Rung, Difference | None, Any]:
    """A broken rung, the first thing that differs, and the lines around it."""
    first = rung.differences[0] if rung.differences else None
    return rung, first, excerpt(proof.sources, first.place) if first else ()


def _split_is_suspect(proof: Proof) -> bool:
    """Whether a rule or the ladder found the law SPLIT broken."""
    codes = {finding.code for finding in proof.findings}
    by_rule = "LS100" in codes or any(code.startswith("LS2") for code in codes)
    return by_rule or (proof.broken is not None and proof.broken.name == "partition")


def _safe(figures: Sequence[Figure]) -> list[tuple[Figure, Any]]:
    """Each with its SVG marked as such: the builders have escaped what is in it."""
    from markupsafe import Markup

    return [(figure, Markup(figure.svg)) for figure in figures]


def _card(proof: Proof, finding: Finding, rules: Rules, root: str) -> Card:
    name, page = rules.get(finding.code, ("", ""))
    sides = [_side(proof, witness, root) for witness in finding.witnesses]
    shown: list[Side] = []
    places: set[Place | None] = set()
    for witness, side in zip(finding.witnesses, sides, strict=True):
        if len(shown) < 2:
            again = witness.place in places
            shown.append(Side(side.who, side.where, side.text, ()) if again else side)
            places.add(witness.place)
    return Card(
        finding,
        _LAWS[finding.code[2]].value if finding.code[2:3] in _LAWS else "",
        name,
        page.strip(),
        finding.code in proof.accepted,
        tuple(shown),
        tuple(sides[2:]),
    )


def _side(proof: Proof, witness: Witness, root: str) -> Side:
    where = words.shown(witness.place, root) if witness.place else ""
    return Side(words.side(witness), where, witness.text, excerpt(proof.sources, witness.place))
