"""Triage of a step that is not finite: run again by all ranks together, told in one block."""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.runtime.session import Session
from lockstep.runtime.step import MicroBatch, StepResult
from lockstep.runtime.triage.history import History
from lockstep.runtime.triage.remedy import everywhere, try_fp32
from lockstep.runtime.triage.rerun import Scene, watched
from lockstep.runtime.triage.words import advice, block


@dataclass(frozen=True)
class Told:
    """What a triage says, the same on every rank: lines of the report, and what to do next."""

    lines: tuple[str, ...]
    next_step: str


def triage(
    session: Session, step: int, micro_batches: Sequence[MicroBatch], result: StepResult, history: History
) -> Told:
    """Find what made a skipped step not finite. All ranks call it together, right after the step.

    Weights, gradients, buffers, optimizer and random state are as before, bit by bit.

    Args:
        session: of this rank.
        step: number of the step.
        micro_batches: this rank's, as the step got them.
        result: what the step did.
        history: the last steps, this one included.
    """
    world = session.world
    scene = Scene(
        replica=session.replica,
        precision=session.precision,
        batches=[micro.batch for micro in micro_batches],
        seed=session.config.seed,
        rank=world.rank,
        step=step,
        num_ranks=world.num_ranks,
        scale=history.scale,
        counting=session.step.counting,
        counts=result.counts,
    )
    outcomes = everywhere(watched(scene), world)
    remedy = try_fp32(scene, outcomes, world)
    return Told(tuple(block(outcomes, remedy, history.told(world))), advice(outcomes, remedy))
