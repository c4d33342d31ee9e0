"""Where the numbers of a run go besides metrics.jsonl: what a tracker is, for ours and for one of your own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

__all__ = ["Abandons", "About", "Tracker"]


@dataclass(frozen=True)
class About:
    """What a tracker is told of a run before the first record.

    Attributes:
        name: of the run: `log.name`, else the name of its folder.
        folder: of the run.
        config: the resolved config by dotted name, such as `optim.lr`; plain values.
        facts: what the manifest holds besides, by dotted name: `contract` (the contract line), `num_ranks`,
            `device.type`, `versions.torch` and so on; plain values.
        run_id: what this tracker's `about` has returned in the start that the run goes on from; None in a new run.
        resumed_at: optimizer steps done by the checkpoint that the run goes on from; None in a new run.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    run_id: str | None = None
    resumed_at: int | None = None


class Tracker(Protocol):
    """A place for the numbers of a run. Only rank 0 has one.

    All calls come one at a time from one thread, which is not the training's: the training never waits for a record.
    An error in `about` ends the run before it has begun; a later one is told once, and the training goes on.
    """

    @property
    def name(self) -> str:
        """A short name, for messages and as the key of what is remembered for a resume."""

    def about(self, about: About) -> str | None:
        """Begin, or go on with `about.run_id`; what is returned is that id in the next start. Called once, first."""

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Take one record.

        Args:
            step: optimizer steps done.
            values: numbers by name, such as `loss` or `val/miou`; what differs by rank is `memory_mib/rank_0` and so
                on. They may be infinite or not a number.
        """

    def finish(self, ending: str, results: Mapping[str, float]) -> None:
        """Write what is left and close. Called once, last; not where the process is killed.

        Args:
            ending: `done`, `stopped early`, `stopped`, `preempted`, or `failed` after an error.
            results: the last evaluation.
        """


@runtime_checkable
class Abandons(Protocol):
    """A tracker that has to be told when it has not finished in time."""

    def abandon(self) -> None:
        """Let go at once. Called from another thread, while one of the other calls still runs."""
