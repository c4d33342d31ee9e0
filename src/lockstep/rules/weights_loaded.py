"""Weights that are loaded arrive.

What must hold
    `load_state_dict(..., strict=False)` finds the names of the file in the model.

Why
    The wrapper puts `module.` before every name (and torch.compile puts `_orig_mod.`). A file saved from the wrapped
    model has other names than the plain model. With `strict=False` this is no error: nothing is loaded, and the weights
    stay as they were drawn.

How it shows
    Nothing stops. A resumed run begins again from nothing, a loss jumps, a loaded model is as good as chance.

Fix
    Save the inner module, `model.module.state_dict()`, so that files have plain names; or take the beginning off with
    `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")`. Load with `strict=True`, or look
    at what `load_state_dict` returns.

Example
    twins/weights_loaded: the wrapped model is saved, a plain one loads it with `strict=False`.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.trace.events import Loaded
from lockstep.trace.trace import Trace

CODE = "LS306"
LAW = Law.ONCE
NEED = 1
AFTER: tuple[str, ...] = ("LS100",)

_FEW = 10
"""Fewer than one name in so many, of those given and of those wanted, is an accident and no transfer of weights."""


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that loaded next to nothing."""
    lines: dict[str, dict[int, Loaded]] = {}
    for rank in trace.ranks:
        for event in rank.of(Loaded):
            if event.what == "module" and not event.strict and event.wanted and event.matched * _FEW <= _least(event):
                lines.setdefault(event.at, {}).setdefault(rank.rank, event)
    for found in lines.values():
        event = next(iter(found.values()))
        given, wanted = event.given, event.wanted
        yield Finding(
            CODE,
            Severity.ERROR,
            f"load_state_dict with strict=False used {event.matched} of {given} entries; the module has {wanted}.",
            "names in a file are the names in the model",
            "save `model.module.state_dict()`, or take `module.` off the names, and load with strict=True",
            tuple(
                Witness(f"{one.matched} of {one.given} entries were used", rank, one.step, Place.parse(one.at))
                for rank, one in found.items()
            ),
        )


def _least(event: Loaded) -> int:
    return min(event.given, event.wanted)
