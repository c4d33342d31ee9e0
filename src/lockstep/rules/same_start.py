"""All ranks take their first step from the same weights.

What must hold
    Before the first optimizer step every parameter has the same value on every rank.

Why
    Averaged gradients move all ranks by the same amount. Ranks that start apart stay apart: each follows a path of its
    own with gradients that belong to none of them, and the checkpoint holds one of the paths.

How it shows
    Nothing stops. The loss falls more slowly than on one GPU, and evaluation differs from rank to rank.
    DistributedDataParallel copies rank 0's weights when it is built, so a seed that depends on the rank does no harm
    before it. It does where gradients are averaged by hand, and where weights change after the wrap: only rank 0 loads
    the checkpoint, or only rank 0 knows the configuration.

Fix
    Seed all ranks alike, or broadcast rank 0's weights once. Load weights on every rank, before the wrap.

Example
    twins/same_start: the model is built after `torch.manual_seed(rank)` and gradients are averaged by hand.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lockstep.core.finding import Finding, Law, Severity, Witness
from lockstep.rules.evidence.state import (
    Held,
    both_sides,
    differing,
    held,
    place,
    replicated,
    same_steps,
    titles,
)
from lockstep.trace.events import Event, Loaded, Optimizer, Seed, Step
from lockstep.trace.trace import Trace

CODE = "LS111"
LAW = Law.SAME
NEED = 2
AFTER = ("LS100", "LS102", "LS107")

_MUST = "before the first step every parameter has the same value on every rank"


def dynamic(trace: Trace) -> Iterable[Finding]:
    """Sizes of what each optimizer holds, then the values before its first step."""
    yield from _other_sizes(trace)
    parameters = replicated(trace)
    for steps in same_steps(trace):
        mine = parameters.get(steps[0].optimizer, {})
        keys = differing([step.before for step in steps], tuple(mine)) if steps[0].number == 0 else ()
        if keys:
            yield _other_values(trace, steps, keys, mine)


def _other_values(trace: Trace, steps: Sequence[Step], keys: Sequence[str], mine: Mapping[str, Held]) -> Finding:
    causes = _causes(trace, steps)
    events: Sequence[Event] = causes or steps
    first = mine[keys[0]].title

    def say(index: int) -> str:
        return f"{_deed(events[index])}; {first} was {steps[index].before[keys[0]]} before the first step"

    seen = f"before the first step {titles(keys, mine)} differ between ranks"
    step = "seed all ranks alike, or broadcast rank 0's weights; load weights on every rank, before the wrap"
    return Finding(CODE, Severity.ERROR, f"{seen}.", _MUST, step, both_sides(trace, events, say))


def _causes(trace: Trace, steps: Sequence[Step]) -> list[Event]:
    """What each rank did to its weights, where that differs: loaded some or not, or seeded with another value."""
    early = [
        [event for event in rank.of(Loaded, Seed) if event.step <= step.step]
        for rank, step in zip(trace.ranks, steps, strict=True)
    ]
    loads = [[event for event in events if isinstance(event, Loaded) and event.what == "module"] for events in early]
    seeds = [[event for event in events if isinstance(event, Seed) and event.lib == "torch"] for events in early]
    if len({len(some) for some in loads}) > 1:
        return [some[-1] if some else step for some, step in zip(loads, steps, strict=True)]
    if all(seeds) and len({some[-1].value for some in seeds}) > 1:
        return [some[-1] for some in seeds]
    return []


def _deed(event: Event) -> str:
    match event:
        case Loaded():
            return f"loaded {event.matched} of {event.wanted} weights here"
        case Seed():
            return f"seeded torch with {event.value} here"
        case _:
            return "made its first step here"


def _other_sizes(trace: Trace) -> Iterator[Finding]:
    """Another model on another rank: the same parameters by name, but not of the same sizes."""
    ranks = [held(rank) for rank in trace.ranks]
    for number, mine in ranks[0].items():
        for rank, others in zip(trace.ranks[1:], ranks[1:], strict=True):
            theirs = others.get(number, {})
            pair = next(((one, theirs[key]) for key, one in mine.items() if _resized(one, theirs.get(key))), None)
            if pair is None:
                continue
            one, other = pair
            seen = (
                f"{one.title} has {one.numel} elements on rank {trace.ranks[0].rank}, {other.numel} on rank {rank.rank}"
            )
            told = [next(one for one in each if one.optimizer == number) for each in trace.each(Optimizer)]
            sides = tuple(
                Witness(f"{size.numel} elements", where.rank, event.step, place(event))
                for size, where, event in ((one, trace.ranks[0], told[0]), (other, rank, told[trace.ranks.index(rank)]))
            )
            yield Finding(CODE, Severity.ERROR, f"{seen}.", _MUST, "build the model from one configuration", sides)
            return


def _resized(one: Held, other: Held | None) -> bool:
    return other is not None and one.name == other.name and one.name != "" and one.numel != other.numel
