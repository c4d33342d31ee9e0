"""The report of `lockstep doctor` as text and as plain values for JSON. Pure."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from lockstep.launch.health import link
from lockstep.launch.health.check import ORDER, Check, size
from lockstep.launch.health.ranks import Measured

_NAME = 18
_WIDTH = 110


def lines(checks: Sequence[Check], title: str = "") -> Iterator[str]:
    """One block for each group: status, name, what was seen; below it what to do."""
    if title:
        yield title
    for group in dict.fromkeys(check.group for check in checks):
        yield f"{group}"
        for check in checks:
            if check.group == group:
                yield from _check(check)


def _check(check: Check) -> Iterator[str]:
    head = f"  {check.status:<4}  {check.name:<{_NAME}}  "
    space = " " * len(f"  {check.status:<4}  {'':<{_NAME}}  ")
    first, *more = check.seen.split("\n")
    yield from _wrapped(head, space, first)
    for line in more:
        yield space + line
    if check.advice:
        yield from _wrapped(f"{space}Next: ", f"{space}  ", check.advice)


def _wrapped(head: str, space: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=head, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )


def table(measured: Measured) -> Iterator[str]:
    """The sizes: time of one all-reduce, bytes of the tensor per second, bytes per second over each link."""
    yield f"  {'size':>9}  {'time':>10}  {'algbw':>10}  {'busbw':>10}"
    for row in measured.rows:
        speeds = (link.speed(row.algbw), link.speed(row.busbw(measured.num_ranks)))
        yield f"  {size(row.num_bytes):>9}  {row.seconds * 1e3:>7.3f} ms  {speeds[0]:>10}  {speeds[1]:>10}"


def tally(checks: Sequence[Check]) -> str:
    """`14 ok, 2 warn, 0 fail`."""
    counted = Counter(check.status for check in checks)
    return ", ".join(f"{counted[status]} {status}" for status in ORDER)


def values(own: Sequence[Check], together: Sequence[Check], measured: Measured | None, node: int) -> dict[str, Any]:
    """Everything, for a program.

    Returns: {status, nodes: [{node, host, facts, checks}], together: [check], all_reduce: {backend, num_ranks, sizes,
    compute_s, clocks, pairs} or None}. Bytes and seconds throughout.
    """
    nodes: list[dict[str, Any]] = [{"node": node, "checks": [asdict(check) for check in own]}]
    reduced: dict[str, Any] | None = None
    everything = [*own, *together]
    if measured is not None:
        nodes = [asdict(report) for report in measured.nodes]
        everything = [*(check for report in measured.nodes for check in report.checks), *together]
        rows = [{**asdict(row), "algbw": row.algbw, "busbw": row.busbw(measured.num_ranks)} for row in measured.rows]
        reduced = {"backend": measured.backend, "num_ranks": measured.num_ranks, "sizes": rows}
        reduced["compute_s"] = measured.compute_s
        for name in ("clocks", "pairs"):
            reduced[name] = [asdict(one) for one in getattr(measured, name)]
    worst = max((ORDER.index(check.status) for check in everything), default=0)
    together_values = [asdict(check) for check in together]
    return {"status": ORDER[worst], "nodes": nodes, "together": together_values, "all_reduce": reduced}
