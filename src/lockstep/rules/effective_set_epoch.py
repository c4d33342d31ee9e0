"""A new epoch, told to the sampler, is a new order.

What must hold
    Where `set_epoch` is called with new values, the order of the training data changes.

Why
    The call is there, so everyone believes that the data are shuffled. But it went to another object than the one that
    decides the order: a sampler that the loader does not use, a batch sampler that keeps it to itself, a subclass whose
    `__iter__` does not look at `self.epoch`, a wrapper of a library.

How it shows
    As a missing `set_epoch`: nothing fails, and every epoch has the batches of the first.

Fix
    Call `set_epoch` of the sampler that is in the loader, let a batch sampler hand it on, and seed the permutation by
    `seed + epoch`.

Example
        generator.manual_seed(self.seed)                  # the same order for ever
        generator.manual_seed(self.seed + self.epoch)
"""

from collections.abc import Iterator

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.rules.evidence.data import rising, some, sources
from lockstep.rules.evidence.order import repeated, told_epochs
from lockstep.trace.events import SetEpoch
from lockstep.trace.trace import Trace

CODE, LAW, NEED = "LS205", Law.SPLIT, 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterator[Finding]:
    """Look for epochs that were told and have no effect."""
    for source in sources(trace):
        loader, first = source.loaders[0], source.readings[0][0]
        if loader.shuffle is False or (loader.shuffle is None and rising(first.ids or ())):
            continue
        passes, epochs = repeated(source), told_epochs(trace, source)
        if not passes or len(epochs) < 2:
            continue
        call = next(trace.ranks[0].of(SetEpoch), None)
        yield Finding(
            CODE,
            Severity.ERROR,
            f"set_epoch was called with {some(epochs)}, but all {passes} passes over {source.name} have one order "
            f"({some(first.ids or ())})",
            "a new epoch gives a new order",
            "call set_epoch of the sampler that the loader uses, and let its permutation follow from seed + epoch",
            (
                first.witness(f"the order is that of {loader.sampler}"),
                *(
                    (Witness(f"set_epoch of {call.sampler} is called", 0, call.step, Place.parse(call.at)),)
                    if call is not None
                    else ()
                ),
            ),
        )
