"""Every epoch has an order of its own.

What must hold
    A sampler that knows the ranks deals out the training data in another order in each pass.

Why
    `DistributedSampler` shuffles by its seed and the epoch it was told, so that all ranks draw the same permutation.
    Nobody tells it the epoch but the script. Without `set_epoch` each epoch repeats the first: the same batches, and on
    each rank the same share of the data for ever.

How it shows
    Nothing fails. Training is a little worse than it was on one device, and every epoch's loss curve has the same
    bumps.

Fix
    Call `sampler.set_epoch(epoch)` on every rank before the loader is iterated. Keep `shuffle=True` in the sampler (the
    default).

Example
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                ...
"""

from collections.abc import Iterator

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence.data import Source, rising, some, sources
from lockstep.rules.evidence.order import repeated, told_epochs
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS204", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Compare the passes of each rank with one another."""
    for source in sources(trace):
        same = repeated(source)
        if same and (_fixed(source) or len(told_epochs(trace, source)) < 2):
            yield _finding(trace, source, same)


def _fixed(source: Source) -> bool:
    """Whether nobody wants another order: the sampler says so, or it deals out the data as they lie."""
    ids = source.readings[0][0].ids or ()
    return source.loaders[0].shuffle is False or (source.loaders[0].shuffle is None and rising(ids))


def _finding(trace: Trace, source: Source, passes: int) -> Finding:
    fixed, epochs = _fixed(source), told_epochs(trace, source)
    sampler = source.loaders[0].sampler
    if fixed:
        why = f"its {sampler} does not shuffle"
    elif epochs:
        why = f"set_epoch was called with {some(epochs)} only"
    else:
        why = f"set_epoch of its {sampler} was never called"
    return Finding(
        CODE,
        Severity.NOTE if fixed else Severity.ERROR,
        f"all {passes} passes over {source.name} have the order of the first "
        f"({some(source.readings[0][0].ids or ())}): {why}",
        "each epoch has an order of its own",
        "let the sampler shuffle, and call its set_epoch(epoch) before each epoch"
        if fixed
        else "call sampler.set_epoch(epoch) on every rank before the loader is iterated",
        tuple(
            one.witness(f"rank {one.rank}, pass {one.begin.number}: {some(one.ids or ())}")
            for one in source.readings[0][:2]
        ),
    )
