"""Runs the micro-batches of a step once more under watch, and leaves everything as it was."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.runtime.counting import Counting
from lockstep.runtime.fp32_modules import temporarily_in_fp32
from lockstep.runtime.loss import Terms, checked_terms, total_loss
from lockstep.runtime.parallel.batch_norm import SyncBatchNorm
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.precision import Precision
from lockstep.runtime.state.tensors import clean_name
from lockstep.runtime.streams import preserved, seed_rank_step
from lockstep.runtime.triage.finding import Outcome
from lockstep.runtime.triage.values import fault, floats_in
from lockstep.runtime.triage.watch import Watch
from lockstep.runtime.undo import BufferUndo


@dataclass(frozen=True)
class Scene:
    """All that a step was made of on one rank.

    Attributes:
        replica: the wrapped model, with the weights that the step had.
        precision: the format of the forward.
        batches: the micro-batches on the device.
        seed, rank, step: of the random stream.
        scale: loss scale of the step.
        counting: how its counts reached all ranks.
        counts: the count of each term over all ranks.
    """

    replica: Wrapped
    precision: Precision
    batches: Sequence[Any]
    seed: int
    rank: int
    step: int
    num_ranks: int
    scale: float
    counting: Counting
    counts: Mapping[str, float]

    @property
    def together(self) -> bool:
        """Whether forward or backward communicates, so that a rank cannot leave it alone."""
        kinds = SyncBatchNorm, nn.SyncBatchNorm
        return self.replica.paired or any(isinstance(module, kinds) for module in self.replica.model.modules())


def watched(scene: Scene, in_fp32: Sequence[str] = ()) -> Outcome:
    """One watched run; all ranks call it together. Weights, gradients, buffers and random state stay.

    Args:
        scene: the step.
        in_fp32: names of modules that run in float32 this time.
    """
    model = scene.replica.model
    state = [*model.named_parameters(), *model.named_buffers()]
    weights = tuple(clean_name(name) for name, value in state if value.is_floating_point() and fault(value))
    batch = next((f"{name or 'it'} holds {bad}" for name, t in _floats(scene) if (bad := fault(t))), "")
    with _kept(model), temporarily_in_fp32(model, in_fp32, scene.precision), torch.compiler.set_stance("force_eager"):
        seed_rank_step(scene.seed, scene.rank, scene.step)
        try:
            found = _run(scene)
        except Exception as error:
            # The step itself ran. Ranks that need each other end together; else all are told what was in the way.
            if scene.together:
                error.add_note("while a step was run again to find what made it not finite")
                raise
            found = Outcome(finite=False, error=f"{type(error).__name__}: {error}")
    return Outcome(found.finding, found.loss, found.finite, found.micro, batch, weights, found.error)


def _run(scene: Scene) -> Outcome:
    finite, total, micro_of = True, 0.0, -1
    params = [p for p in scene.replica.model.parameters() if p.requires_grad]
    with Watch(scene.replica.model) as watch:
        for micro, batch in enumerate(scene.batches):
            with watch.forward(), scene.precision.autocast():
                terms = _forward(scene, batch)
            loss = total_loss(terms, _divisors(scene, terms), scene.num_ranks) * scene.scale
            sound = watch.judged(loss)
            sound &= _backward(scene, loss, params)
            total += float(loss.detach())
            if not sound and micro_of < 0:
                micro_of = micro
            finite &= sound
    return Outcome(watch.found, total, finite, max(0, micro_of))


def _forward(scene: Scene, batch: Any) -> Terms:
    """Around the wrapper, whose bookkeeping is not to notice; through it where a forward needs the other ranks."""
    if scene.replica.paired:
        return scene.replica.forward(batch)
    recipe = scene.replica.recipe
    return checked_terms(recipe.loss(scene.replica.model, batch), type(recipe).__name__)


def _backward(scene: Scene, loss: Tensor, params: Sequence[nn.Parameter]) -> bool:
    """Whether loss and gradients are finite. Every rank runs it for every micro-batch."""
    if not loss.requires_grad:
        return not fault(loss)
    if scene.replica.paired:
        scene.replica.backward(loss, last=True)
        grads = [p.grad for p in params]
    else:
        # Not backward(): the wrapper's hooks would reduce what nobody else brings.
        grads = list(torch.autograd.grad(loss, params, allow_unused=True))
    return not fault(loss) and not any(fault(grad) for grad in grads if grad is not None)


def _divisors(scene: Scene, terms: Terms) -> Mapping[str, float]:
    """What the step divided by: its counts, or the number that stood in for them."""
    kind = scene.counting.kind
    stands_in = kind == "carried" or (kind == "returned" and len(scene.batches) > 1)
    return dict.fromkeys(terms, scene.counting.scale) if stands_in else scene.counts


def _floats(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    for batch in scene.batches:
        yield from floats_in(batch)


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Gradients, buffers and random state come back as they were, bit by bit."""
    grads = [(p, p.grad) for p in model.parameters()]
    buffers = BufferUndo(model)
    buffers.keep()
    for param, _ in grads:
        param.grad = None
    try:
        with preserved():
            yield
    finally:
        buffers.undo()
        for param, grad in grads:
            param.grad = grad
