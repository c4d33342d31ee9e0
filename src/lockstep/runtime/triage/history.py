"""The last steps before one that is not finite."""

from collections import deque

from lockstep.runtime.step import StepResult
from lockstep.runtime.triage.words import Past
from lockstep.runtime.world import World

KEPT = 6


class History:
    """Loss and scale of the last steps of this rank. Nothing is computed until it is asked for."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float, StepResult]] = deque(maxlen=KEPT)

    def add(self, step: int, scale: float, result: StepResult) -> None:
        """Keep one step.

        Args:
            step: its number.
            scale: the loss scale that it ran with.
            result: what it did.
        """
        self._steps.append((step, scale, result))

    @property
    def scale(self) -> float:
        """The loss scale of the newest step."""
        return self._steps[-1][1]

    def told(self, world: World) -> list[Past]:
        """The steps with the loss over all ranks, oldest first. All ranks call it together."""
        mine = [{name: float(value) for name, value in result.sums.items()} for _, _, result in self._steps]
        ranks = world.gather(mine)
        told = []
        for i, (step, scale, result) in enumerate(self._steps):
            loss = 0.0
            for name, weight in result.weights.items():
                total = sum(rank[i].get(name, 0.0) for rank in ranks)
                loss += weight * total / result.counts[name] if result.counts.get(name) else 0.0
            told.append(Past(step, loss, scale))
        return told
