"""BatchNorm sees the whole batch, not a share of it.

What must hold
    A layer that normalises by statistics of the batch takes them over the batches of all ranks.

Why
    With N ranks each BatchNorm sees an N-th of the batch. Mean and variance of 2 images are not those of 16: the
    gradients are others than those of one process with the same global batch, and the running statistics are rank 0's.

How it shows
    The same global batch gives worse results on more ranks; with few samples a rank, much worse. Many trainings accept
    it, with large shares on purpose; hence a deviation, which `verify --accept LS116` declares.

Fix
    `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)` before the wrap (on GPUs; it refuses a CPU). Or a layer that
    looks at each sample by itself, such as GroupNorm. Or frozen statistics: the layers in evaluation mode.

Example
    twins/synchronised_batch_norm: BatchNorm over 8 samples on each of two ranks, GroupNorm instead.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.state import number_of, place
from lockstep.trace.events import Batch, Buffers, Forward, Model
from lockstep.trace.trace import RankTrace, Trace

CODE = "LS116"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS102")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """Models that are trained with layers of BatchNorm which no one synchronises."""
    trained = [_trained(rank) for rank in trace.ranks]
    for number, (model, _) in trained[0].items():
        if not model.batch_norms or not all(number in others for others in trained) or _frozen(trace, model):
            continue
        sizes = [_share(rank) for rank in trace.ranks]
        known = [size for size in sizes if size is not None]
        whole = f"{_range(known)} of {sum(known)} samples" if len(known) == len(sizes) else "a share of the samples"
        names = ", ".join([*model.batch_norms[:3], *["..."] * (len(model.batch_norms) > 3)])
        layers = number_of(len(model.batch_norms), "BatchNorm layer")
        yield Finding(
            CODE,
            Severity.DEVIATION,
            f"{layers} of {model.kind} ({names}): in training {whole} on each rank.",
            "statistics of the batch are taken over the batches of all ranks",
            "convert them with SyncBatchNorm.convert_sync_batchnorm (on GPUs), use GroupNorm, or accept it",
            tuple(
                Witness(
                    "trains with a share" if size is None else f"trains with {number_of(size, 'sample')} a forward",
                    rank.rank,
                    call.step,
                    place(call),
                )
                for rank, size, call in zip(trace.ranks, sizes, (one[number][1] for one in trained), strict=True)
            ),
        )


def _range(sizes: Sequence[int]) -> str:
    return f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"


def _trained(rank: RankTrace) -> dict[int, tuple[Model, Forward]]:
    """{number: model, its first training forward}."""
    models = {model.model: model for model in rank.of(Model)}
    calls: dict[int, Forward] = {}
    for call in rank.of(Forward):
        if call.training and call.grad:
            calls.setdefault(call.model, call)
    return {number: (models[number], call) for number, call in calls.items() if number in models}


def _share(rank: RankTrace) -> int | None:
    """Samples of this rank's first training batch."""
    return next((batch.size for batch in rank.of(Batch) if batch.grad), None)


def _frozen(trace: Trace, model: Model) -> bool:
    """Whether the layers' statistics stayed as they were: equal on all ranks at all times that were told.

    Layers in use follow the rank's own batches. Those in evaluation mode, or without running statistics, have nothing
    that moves; the latter are told by having none.
    """
    layers = tuple(f"{name}." if name else "" for name in model.batch_norms)
    told = [
        {name: digest for name, digest in event.digests.items() if name.startswith(layers)}
        for rank in trace.ranks
        for event in rank.of(Buffers)
        if event.model == model.model
    ]
    moving = [statistics for statistics in told if statistics]
    return len(moving) > 1 and all(statistics == moving[0] for statistics in moving)
