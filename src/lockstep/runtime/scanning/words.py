"""The report of a scan for people."""

from collections.abc import Iterator, Sequence

from lockstep.core.words import amount, columns, printable, shortened
from lockstep.runtime.scanning.finding import KINDS, Finding
from lockstep.runtime.scanning.result import Result, Split

_NAMES = {"train": "training", "val": "validation"}
_MOST_CLASSES = 24
_MOST_LEAVES, _MOST_NAME, _MOST_TEXT = 8, 200, 600
"""Leaves of the usual sample in the table; characters of a sample's files, and of what is wrong with it."""


def report(result: Result, show: int) -> str:
    """The whole report.

    Args:
        result: the scan.
        show: findings of each kind that are printed; the rest is counted.
    """
    lines = [*_table(result), *_classes(result.splits), *_findings(result.findings, show), *_last(result).split("\n")]
    return "\n".join(map(printable, lines))


def _table(result: Result) -> Iterator[str]:
    rows = [("split", "samples", "read", "bad", "bytes of a sample: min / median / max", "most samples are")]
    for one in result.splits:
        sizes = " / ".join(map(amount, one.sizes)) if one.sizes else "-"
        leaves = [f"{path or 'sample'} {kind} {shape}" for path, kind, shape in one.usual[:_MOST_LEAVES]]
        left_out = len(one.usual) - len(leaves)
        usual = ", ".join(leaves + [f"and {left_out} more"] * bool(left_out)) or "-"
        more = f" ({one.builds} different)" if one.builds > 1 else ""
        length = "stream" if one.length is None else str(one.length)
        rows.append((one.name, length, str(one.read), str(one.bad), sizes, usual + more))
    yield from columns(rows)


def _classes(splits: Sequence[Split]) -> Iterator[str]:
    counted = [one for one in splits if one.counts is not None]
    if not counted:
        return
    yield "labels"
    most = max(len(one.counts or ()) for one in counted)
    rows = [("  class", *(one.name for one in counted))]
    present = [label for label in range(most) if any((one.counts or ())[label : label + 1] > (0,) for one in counted)]
    for label in present[:_MOST_CLASSES]:
        rows.append((f"  {label}", *(_share(one, label) for one in counted)))
    yield from columns(rows)
    if len(present) > _MOST_CLASSES:
        yield f"  ... and {len(present) - _MOST_CLASSES} more classes (--json FILE has all)"
    for one in counted:
        if one.ignored:
            yield f"  ignored in {one.name}: {_percent(one.ignored, sum(one.counts or ()) + one.ignored)}"
        absent = [str(label) for label, number in enumerate(one.counts or ()) if not number]
        if absent:
            more = f" and {len(absent) - 20} more" if len(absent) > 20 else ""
            yield f"  never in {one.name}: {', '.join(absent[:20])}{more}"


def _share(one: Split, label: int) -> str:
    counts = one.counts or ()
    return f"{counts[label]} ({_percent(counts[label], sum(counts))})" if label < len(counts) else "-"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _findings(findings: Sequence[Finding], show: int) -> Iterator[str]:
    for kind, words in KINDS.items():
        mine = [one for one in findings if one.kind == kind]
        if not mine:
            continue
        note = "note: " if mine[0].note else ""
        yield f"{note}{words}: {len(mine)}"
        yield from (f"  {name(one)}: {shortened(one.text, _MOST_TEXT)}" for one in mine[:show])
        if len(mine) > show:
            yield f"  ... and {len(mine) - show} more (--show N, or --json FILE for all)"


def name(one: Finding) -> str:
    """`train 13, images/a.jpg`; without an index where it is of no single sample.

    Without the files where one of them is named by the text: that is the one it is about.
    """
    index = "" if one.index is None else f" {one.index}"
    named = not one.where or any(file in one.text for file in one.where.split(", "))
    return f"{one.split}{index}" if named else f"{one.split}{index}, {shortened(one.where, _MOST_NAME)}"


def _last(result: Result) -> str:
    read, all_bytes = sum(one.read for one in result.splits), sum(one.num_bytes for one in result.splits)
    errors = len(result.errors)
    notes = len(result.findings) - errors
    found = f"{errors} found" if errors else "nothing found"
    more = f", {notes} note{'' if notes == 1 else 's'}" if notes else ""
    speed = f"{read / result.seconds:.0f} samples/s, {amount(all_bytes / result.seconds)}/s"
    processes = f"{result.workers} process{'' if result.workers == 1 else 'es'}"
    told = f"{found}{more}: {read} samples in {result.seconds:.1f} s ({speed}, {processes})"
    return f"{told}\nNOT COMPLETE: {result.stopped}" if result.stopped else told
