"""From the stated batch and N to each rank's share, the micro-steps and the learning rate (contract line)."""

import math
from dataclasses import dataclass

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config import BatchConfig, OptimConfig


@dataclass(frozen=True)
class BatchPlan:
    """What an optimizer step is made of.

    Attributes:
        global_batch: samples, or targets, of one optimizer step over all ranks.
        accumulation: micro-steps of a step; with targets it varies, and the data set tells it.
        num_ranks: how many ranks there are.
        lr: learning rate after scaling.
        lr_factor: what the stated rate was multiplied by; the warm-up is longer by the same factor.
        lr_reason: why, in words.
        targets: whether targets are counted and not samples.
    """

    global_batch: int
    accumulation: int
    num_ranks: int
    lr: float
    lr_factor: float
    lr_reason: str
    targets: bool = False

    @staticmethod
    def of(batch: BatchConfig, optim: OptimConfig, num_ranks: int) -> "BatchPlan":
        """Resolve the sections `batch` and `optim` for N ranks.

        Raises:
            UserError: where the global batch cannot give every rank a sample in every micro-step.
        """
        if batch.global_targets is not None:
            factor, reason = lr_factor(batch.global_targets, batch.reference, optim)
            return BatchPlan(batch.global_targets, 1, num_ranks, optim.lr * factor, factor, reason, targets=True)
        accumulation = batch.accumulation or 1
        if batch.per_rank is not None:
            size = batch.per_rank * num_ranks * accumulation
        else:
            assert batch.global_batch is not None
            size = batch.global_batch
        if batch.micro_batch is not None:
            accumulation = math.ceil(size / (num_ranks * batch.micro_batch))
        if size < num_ranks * accumulation:
            ranks, micro = _count(num_ranks, "rank"), _count(accumulation, "micro-step")
            seen = f"batch.global_batch={size} for {ranks} x {micro}"
            must = "at least one sample for each rank in each micro-step"
            other = "lower batch.accumulation" if batch.micro_batch is None else "raise batch.micro_batch"
            raise UserError(explain(seen, must, next_step=f"raise batch.global_batch, lower --nproc, or {other}"))
        factor, reason = lr_factor(size, batch.reference, optim)
        return BatchPlan(size, accumulation, num_ranks, optim.lr * factor, factor, reason)

    def line(self, steps_per_epoch: int | None, most_micro: int = 1) -> str:
        """The contract in one line, printed at the start and kept with the run.

        Args:
            steps_per_epoch: of the first epoch, None for a stream.
            most_micro: largest number of micro-steps of a step, where targets are counted.
        """
        if self.targets:
            return self._line_of_targets(steps_per_epoch, most_micro)
        per_rank = self.global_batch / (self.num_ranks * self.accumulation)
        share = f"{per_rank:g}" if per_rank == int(per_rank) else f"{math.floor(per_rank)} or {math.ceil(per_rank)}"
        steps = f"{steps_per_epoch} steps an epoch" if steps_per_epoch is not None else "steps as the stream lasts"
        ranks, micro = _count(self.num_ranks, "rank"), _count(self.accumulation, "micro-step")
        batch = f"global batch {self.global_batch} = {share} per rank x {ranks} x {micro}"
        return f"{batch}, lr {self.lr:g} ({self.lr_reason}), {steps}"

    def _line_of_targets(self, steps_per_epoch: int | None, most_micro: int) -> str:
        micro = _count(1, "micro-step") if most_micro == 1 else f"1..{most_micro} micro-steps"
        share = f"about {self.global_batch // self.num_ranks} per rank x {_count(self.num_ranks, 'rank')} x {micro}"
        batch = f"global batch {self.global_batch} targets = {share}"
        return f"{batch}, lr {self.lr:g} ({self.lr_reason}), about {steps_per_epoch} steps an epoch"


def lr_factor(global_batch: int, reference: int | None, optim: OptimConfig) -> tuple[float, str]:
    """The factor of the learning rate for a global batch, and the reason in words."""
    if reference is None:
        return 1.0, "as stated"
    if global_batch == reference:
        return 1.0, "same as reference"
    ratio = global_batch / reference
    if optim.lr_scaling == "none":
        return 1.0, f"not scaled; the global batch is {ratio:g} x the reference {reference}"
    wanted = ratio if optim.lr_scaling == "linear" else math.sqrt(ratio)
    factor = min(wanted, optim.lr_cap)
    capped = f", capped from x {wanted:.3g}" if factor < wanted else ""
    return factor, f"{optim.lr:g} x {factor:.3g}{capped}, {optim.lr_scaling} rule, reference batch {reference}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
