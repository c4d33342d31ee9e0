"""One scan from data sets to its result."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from lockstep.core.errors import RunError
from lockstep.runtime.data.named import strays_of, where_of
from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.agreement import Ask, disagreements, findings_of
from lockstep.runtime.scanning.crew import Crew
from lockstep.runtime.scanning.finding import Finding, in_order
from lockstep.runtime.scanning.gather import Seen, Table, repeats, shared
from lockstep.runtime.scanning.progress import Bar
from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.result import Result, split_of
from lockstep.runtime.scanning.telling import told

_MANY, _MANY_SHARE = 10, 0.05
"""Empty leaves of one kind from which they are meant: so many, and so large a share of the samples."""
_OF_THE_RECIPE = ("unreadable", "collate")
"""Kinds that are a fault of the recipe, not of a sample, where all samples have the same one."""
_NOT_BATCHED = ("unreadable", "fatal", "slow", "structure", "dtype", "shape", "collate")


def merged(findings: Sequence[Finding], odd: Sequence[Finding]) -> list[Finding]:
    """Findings with those of samples unlike the others; what is one fault is said once.

    Args:
        findings: of single samples.
        odd: of the kinds structure, dtype and shape.
    """
    # An empty leaf has another shape; a sample without a label makes no batch.
    empty = {(one.split, one.index) for one in findings if one.kind == "empty"}
    unlike = {(one.split, one.index) for one in odd}
    kept = [one for one in findings if one.kind != "collate" or (one.split, one.index) not in unlike]
    return kept + [one for one in odd if one.kind != "shape" or (one.split, one.index) not in empty]


def often_empty(findings: Sequence[Finding], odd: Sequence[Finding], split: str, samples: int) -> list[Finding]:
    """Findings with a note for a leaf that many samples have without values, as pictures without a box: it is meant.

    Args:
        findings: merged.
        odd: of the kinds structure, dtype and shape: collate does not take these samples.
        split: to look at. samples: in it.
    """
    empty: dict[str, list[Finding]] = {}
    bad = {one.index for one in [*findings, *odd] if one.split == split and one.kind in ("shape", "collate")}
    for one in findings:
        if one.split == split and one.kind == "empty" and one.index not in bad:
            empty.setdefault(one.text, []).append(one)
    meant = {text: len(found) for text, found in empty.items() if len(found) >= max(_MANY, _MANY_SHARE * samples)}
    notes = [
        Finding("often_empty", split, None, "", f"{text} in {number} of {samples} samples, which collate takes")
        for text, number in meant.items()
    ]
    kept = [one for one in findings if (one.split, one.kind) != (split, "empty") or one.text not in meant]
    return kept + notes


def in_all(findings: Sequence[Finding], split: str, samples: int) -> list[Finding]:
    """Findings where what all samples of a split have in common is one finding, of no single sample.

    Args:
        findings: merged.
        split: to look at. samples: that were tried in it.
    """
    same: dict[tuple[str, str], set[int | None]] = {}
    apart = set()
    for one in findings:
        if one.split == split and one.kind in _NOT_BATCHED:
            apart.add(one.index)
            if one.kind in _OF_THE_RECIPE:
                same.setdefault((one.kind, one.text), set()).add(one.index)
    # Each of them has this fault, or another one that keeps it out of a batch.
    whole = len(apart) == samples
    shared = {key: len(found) for key, found in same.items() if whole and len(found) > max(1, samples // 2)}
    kept = [one for one in findings if one.split != split or (one.kind, one.text) not in shared]
    return kept + [
        Finding(kind, split, None, "", f"all {'' if number == samples else 'other '}{number} samples: {text}")
        for (kind, text), number in sorted(shared.items())
    ]


@dataclass
class Scanner:
    """A scan of some splits.

    Args:
        name: of the recipe.
        sources: the splits.
        recipe: gives `collate` and `labels`.
        seed: of the run.
        num_workers: processes that read.
        timeout_s: the longest that one sample may take.
    """

    name: str
    sources: Sequence[Source]
    recipe: Batching
    seed: int
    num_workers: int
    timeout_s: float
    findings: list[Finding] = field(default_factory=list)
    interrupted: bool = False

    def run(self) -> Result:
        """Read everything once. What was found by then is told where it is interrupted, or gives up.

        Raises:
            UserError: where the recipe is wrong, not a sample.
        """
        start = time.monotonic()
        lengths = [source.length for source in self.sources]
        total = None if None in lengths else sum(length or 0 for length in lengths)
        bar = Bar(total)
        crew = Crew(self.sources, self.recipe, self.seed, self.num_workers, self.timeout_s, bar.show)
        seen = {source.split: Seen(source.split) for source in self.sources}

        def came(read: Read, known: list[int]) -> None:
            seen[read.split].add(read, known)
            self.findings += read.findings
            bar.done, bar.found = bar.done + read.done, len(self.findings)

        def found(finding: Finding) -> None:
            seen[finding.split].done += 1
            bar.done += 1
            self.findings.append(finding)

        stopped = ""
        tables: dict[str, Table] = {}
        try:
            try:
                crew.read(came, found)
            except RunError as error:
                stopped = str(error)
            tables = {split: one.table() for split, one in seen.items()}
            if not stopped:
                self._judge(tables, crew.compare)
        except KeyboardInterrupt:
            self.interrupted, stopped = True, "interrupted; samples were not compared, stray files not looked for"
        finally:
            bar.close()
            crew.close()
        tables = tables or {split: one.table() for split, one in seen.items()}
        for split, one in seen.items():
            self.findings = in_all(self.findings, split, one.done)
        return self._result(seen, tables, time.monotonic() - start, stopped)

    def _judge(self, tables: dict[str, Table], ask: Ask) -> None:
        """Add what only the whole of a split shows."""
        sources = {source.split: source for source in self.sources}
        for split, table in tables.items():
            odd = [
                one
                for odd in disagreements(split, table.by_build(), ask)
                for one in findings_of(split, odd, partial(where_of, sources[split].data))
            ]
            self.findings = often_empty(merged(self.findings, odd), odd, split, len(table.indices))
            for index, first in repeats(table):
                where = where_of(sources[split].data, index)
                self.findings.append(Finding("twice", split, index, where, f"the same as {split} {first}"))
        if {"train", "val"} <= tables.keys():
            for index, other in shared(tables["train"], tables["val"]):
                where = where_of(sources["train"].data, index)
                self.findings.append(Finding("both", "train", index, where, f"the same as val {other}"))
        self.findings += self._strays()

    def _strays(self) -> Iterator[Finding]:
        said: set[tuple[str, str]] = set()
        bad = {path for one in self.findings if not one.note for path in one.where.split(", ")}
        for source in self.sources:
            try:
                strays = strays_of(source.data)
            except Exception as error:
                strays = [("strays()", f"raised {told(error)}")]
            for path, wrong in strays:
                # Once where both splits look into a folder, and not for what is the file of a bad sample.
                if (path, wrong) not in said and path not in bad:
                    said.add((path, wrong))
                    yield Finding("stray", source.split, None, path, wrong)

    def _result(self, seen: dict[str, Seen], tables: dict[str, Table], seconds: float, stopped: str) -> Result:
        splits = [source.split for source in self.sources]
        findings = in_order(self.findings, splits)
        rows = []
        for source in self.sources:
            table = tables[source.split]
            groups = table.by_build()
            usual = groups[0][0] if groups else None
            rows.append(split_of(seen[source.split], table, usual, source.length, findings))
        return Result(self.name, tuple(rows), tuple(findings), max(seconds, 1e-6), self.num_workers, stopped)
