"""The resume rung: a fresh process goes on from what an earlier one saved, and ends where an unbroken run ends."""

from lockstep.core.proof import Rung
from lockstep.proof.question import Stage


def resume(stage: Stage) -> Rung | None:
    """None where the user named no arguments for it."""
    if stage.question.resume is None:
        return None
    raise NotImplementedError
