"""What a proof is asked, and the takes that its rungs share."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.core.finding import Finding, Severity
from lockstep.launch.script import Manner
from lockstep.proof.align import Layout, layout, rates_of
from lockstep.proof.modes import Mode
from lockstep.proof.takes import Settings, Studio, Take
from lockstep.trace.feed import FeedPlan
from lockstep.trace.script import Program


@dataclass(frozen=True)
class Question:
    """Is `program` on `settings.num_ranks` ranks the training that `reference` is in one process?

    Attributes:
        reference: another script, or None: the program itself as one process.
        accept: codes of deviations that are declared.
        all_rungs: go on after a broken one.
        resume: arguments that make a fresh process go on from what an earlier one saved; None for no such rung.
    """

    program: Program
    reference: Program | None = None
    settings: Settings = field(default_factory=Settings)
    accept: tuple[str, ...] = ()
    all_rungs: bool = False
    resume: tuple[str, ...] | None = None

    @property
    def original(self) -> Program:
        """What runs as one process."""
        return self.reference or self.program

    def serious(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Those that break a rung."""
        return tuple(
            one
            for one in findings
            if one.severity is Severity.ERROR or (one.severity is Severity.DEVIATION and one.code not in self.accept)
        )


class Stage:
    """Makes the takes of one proof; those that several rungs need are made once."""

    def __init__(self, question: Question, studio: Studio) -> None:
        self.question, self.studio = question, studio
        self.needs_variables = False
        self.num_ranks = question.settings.num_ranks
        self._made: dict[str, Take] = {}

    def with_one_rank(self) -> "Stage":
        """The same stage for trials of the distributed program with one rank."""
        alone = copy(self)
        alone.num_ranks = 1
        return alone

    @property
    def mirror_ranks(self) -> int:
        """Ranks that are fed whole batches: the mean of two or four equal numbers is exact, of three it is rounded."""
        return 1 << (self.num_ranks.bit_length() - 1)

    @property
    def norms(self) -> str:
        """How BatchNorm runs on shards: a declared local one is synchronised, so that the rest can be proven."""
        return "synced" if "LS116" in self.question.accept else "own"

    def declared(self, reference: Take) -> dict[str, Any]:
        """Changes to a take of slices that take away what the user has declared."""
        return {"lr": rates_of(reference)} if "LS412" in self.question.accept else {}

    def _once(self, name: str, make: Callable[[str], Take]) -> Take:
        # What one rank does is another take than what several do; the references serve both.
        key = name if name.startswith("reference") or self.num_ranks > 1 else f"{name}, one rank"
        if key not in self._made:
            self._made[key] = make(name)
        return self._made[key]

    def once(self, name: str, make: Callable[[str], Take]) -> Take:
        """A take that rungs have in common and that only they know how to make."""
        return self._once(name, make)

    def _original(self, name: str, mode: Mode, feed: FeedPlan) -> Take:
        feed.folder.mkdir()
        manner = Manner(single=not self.needs_variables)
        steps = self.question.settings.steps
        return self.studio.take(name, self.question.original, 1, mode, feed=feed, manner=manner, steps=steps)

    def reference(self) -> Take:
        """The original in one process, its batches recorded."""
        return self._once("reference", lambda name: self._original(name, Mode(fixed=True), self._record(name)))

    def retry_reference(self) -> Take:
        """The same with torchrun's variables, for a program that does not run without them."""
        del self._made["reference"]
        self.needs_variables = True
        folder = self.record("reference")
        folder.rename(folder.with_name("first-try"))
        return self.reference()

    def record(self, name: str) -> Path:
        """Where the batches of a take lie."""
        return self.studio.folder / f"batches-{name.replace(' ', '-')}"

    def _record(self, name: str) -> FeedPlan:
        return FeedPlan("record", self.record(name))

    def alone(self) -> Take:
        """The program as a distributed one of one rank, fed the reference's batches."""
        return self._once("distributed path", lambda name: self._distributed(name, 1, Mode(fixed=True, norms="local")))

    def plain(self) -> Take:
        """The program on its ranks as it is, to its end."""
        return self._once(
            "two processes",
            lambda name: self.studio.take(name, self.question.program, self.num_ranks, Mode(), keep=False),
        )

    def again(self) -> Take:
        """The same once more."""
        return self._once(
            "two processes again",
            lambda name: self.studio.take(name, self.question.program, self.num_ranks, Mode(), keep=False),
        )

    def nodes(self) -> Take:
        """The same, every rank as a node of its own."""
        manner = Manner(nodes=True)
        return self._once(
            "ranks as nodes",
            lambda name: self.studio.take(
                name, self.question.program, self.num_ranks, Mode(), keep=False, manner=manner
            ),
        )

    def mirror(self, name: str = "mirror", **changes: Any) -> Take:
        """Every rank is fed the reference's batches whole."""
        mode = replace(Mode(fixed=True, norms="local"), **changes)
        return self._once(name, lambda name: self._distributed(name, self.mirror_ranks, mode))

    def _distributed(self, name: str, num_ranks: int, mode: Mode, source: str = "reference") -> Take:
        feed = FeedPlan("mirror", self.record(source))
        steps = self.question.settings.steps
        return self.studio.take(name, self.question.program, num_ranks, mode, feed=feed, steps=steps)

    def content_reference(self) -> Take:
        """The original in one process, the content of its batches recorded."""
        name = "reference with content"
        feed = FeedPlan("record", self.record(name), content=True)
        return self._once(name, lambda name: self._original(name, Mode(fixed=True), feed))

    def content_mirror(self) -> Take:
        """Every rank is fed the very tensors that the original's loaders made."""
        mode = Mode(fixed=True, norms="local")
        source = "reference with content"
        return self._once(
            "mirror with the same content", lambda name: self._distributed(name, self.mirror_ranks, mode, source)
        )

    def reference_without_dropout(self) -> Take:
        """The original in one process, no dropout."""
        name = "reference without dropout"
        mode = Mode(fixed=True, no_dropout=True)
        return self._once(name, lambda name: self._original(name, mode, self._record(name)))

    def layout(self) -> Layout:
        """How the program cuts the reference's steps."""
        return layout(self.reference().trace, self.plain().trace)

    def double_reference(self, name: str = "reference in float64", **changes: Any) -> Take:
        """The original in float64, its batches such that they can be cut."""
        plan = self.layout()
        mode = replace(Mode(fixed=True, high=True, norms="local"), **changes)
        feed = FeedPlan("record", self.record(name), grow=plan.grow, multiple=_multiple(plan), double=True)
        return self._once(name, lambda name: self._original(name, mode, feed))

    def shard(self, name: str = "shard", source: str = "reference in float64", **changes: Any) -> Take:
        """Rank r is fed its slice, in float64."""
        declared = self.declared(self.double_reference()) if source == "reference in float64" else {}
        mode = replace(Mode(fixed=True, high=True, norms=self.norms), **{**declared, **changes})
        return self._once(name, lambda name: self._sharded(name, mode, source, None))

    def slice_alone(self, rank: int) -> Take:
        """One rank's slice in a process alone: its local gradient."""
        mode = Mode(fixed=True, high=True, norms="local")
        return self._once(f"slice {rank}", lambda name: self._sharded(name, mode, "reference in float64", rank))

    def _sharded(self, name: str, mode: Mode, source: str, only: int | None) -> Take:
        plan = self.layout()
        feed = FeedPlan(
            "shard",
            self.record(source),
            rank=only or 0,
            num_ranks=self.num_ranks,
            per=plan.per,
            whole=plan.whole,
            double=True,
        )
        num_ranks = self.num_ranks if only is None else 1
        steps = self.question.settings.steps if only is None else 1
        manner = Manner(fed=only is None)
        return self.studio.take(name, self.question.program, num_ranks, mode, feed=feed, manner=manner, steps=steps)


def _multiple(plan: Layout) -> int:
    """What the rows of a batch must be a multiple of to be cut: at least two a slice where batches are that large.

    A draw of one number cannot be told from a draw of one row."""
    slices = plan.num_ranks * plan.per[1]
    return 2 * slices if plan.size_reference * plan.grow * plan.per[0] >= 2 * slices else slices
