"""Where a run stands: plain numbers that go into its checkpoints."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Position:
    """Where a run stands between two optimizer steps.

    Attributes:
        step: optimizer steps done, skipped ones counted.
        epoch: the epoch that the next step belongs to, from 0.
        consumed: samples of that epoch that all ranks together have consumed.
        skipped: steps without an update, for a loss or gradient that was not finite.
        skipped_in_row: those since the last update.
        best: best value of `best.metric` so far, None before the first evaluation.
        best_step: the step it was reached at.
        stale: evaluations since then.
        evaluated_at: the step of the last evaluation.
    """

    step: int = 0
    epoch: int = 0
    consumed: int = 0
    skipped: int = 0
    skipped_in_row: int = 0
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    evaluated_at: int | None = None

    def after_step(self, samples: int, updated: bool) -> "Position":
        """One step on."""
        row = 0 if updated else self.skipped_in_row + 1
        return replace(
            self,
            step=self.step + 1,
            consumed=self.consumed + samples,
            skipped=self.skipped + (not updated),
            skipped_in_row=row,
        )

    def after_epoch(self) -> "Position":
        """At the start of the next epoch."""
        return replace(self, epoch=self.epoch + 1, consumed=0)

    def after_evaluation(self, value: float | None, mode: Literal["max", "min"]) -> "Position":
        """With an evaluation's value taken into account; nan is never better, None is where there is no best."""
        here = replace(self, evaluated_at=self.step)
        if value is None:
            return here
        better = self.best is None or (value > self.best if mode == "max" else value < self.best)
        if better and not math.isnan(value):
            return replace(here, best=value, best_step=self.step, stale=0)
        return replace(here, stale=self.stale + 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return asdict(self)
