"""The state of ranks side by side: the same step of all of them, and parameters that should be equal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lockstep.core.finding import Place, Witness
from lockstep.trace.events import Event, Model, Optimizer, Step
from lockstep.trace.trace import RankTrace, Trace

_SHARDED = ("FSDP", "FullySharded")


@dataclass(frozen=True)
class Held:
    """One parameter of an optimizer. model: kind of the root module that has it, "" for none."""

    key: str
    name: str
    numel: int
    model: str

    @property
    def title(self) -> str:
        """How to speak of it."""
        return self.name or f"parameter {self.key}"


def place(event: Event | None) -> Place | None:
    """Where an event happened; None for no event."""
    return None if event is None else Place.parse(event.at)


def number_of(count: int, what: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def ended(rank: RankTrace, text: str) -> Witness:
    """A rank's end as one side of a finding. Only an error has a place in the script; a mere end has none."""
    end = rank.end
    where = place(end) if end is not None and end.how == "raised" else None
    return Witness(text, rank.rank, None if end is None else end.step, where)


def finished(rank: RankTrace) -> bool:
    """Whether a rank came to its end by itself and without an error."""
    return rank.end is not None and rank.end.how in ("returned", "exited") and rank.end.code == 0


def same_steps(trace: Trace) -> Iterator[tuple[Step, ...]]:
    """The steps that all ranks have made, one of each rank, in the order of the first rank."""
    made = [{(step.optimizer, step.number): step for step in steps} for steps in trace.each(Step)]
    for key in made[0]:
        if all(key in others for others in made):
            yield tuple(steps[key] for steps in made)


def held(rank: RankTrace) -> dict[int, dict[str, Held]]:
    """{optimizer: {key: parameter}} of a rank, as told last."""
    kinds = {str(model.model): model.kind for model in rank.of(Model)}
    return {one.optimizer: dict(_held(one, kinds)) for one in rank.of(Optimizer)}


def _held(told: Optimizer, kinds: Mapping[str, str]) -> Iterator[tuple[str, Held]]:
    for key, full, numel in zip(told.keys, told.names, told.numel, strict=True):
        model, _, name = full.partition(":")
        yield key, Held(key, name, numel, kinds.get(model, ""))


def replicated(trace: Trace) -> dict[int, dict[str, Held]]:
    """{optimizer: {key: parameter}} of parameters that each rank holds whole, under the same name and of one size.

    What is sharded (FSDP) is none of them, nor what a rank has for itself.
    """
    ranks = [held(rank) for rank in trace.ranks]
    return {
        number: {
            key: one for key, one in mine.items() if _whole(one, [rank.get(number, {}).get(key) for rank in ranks])
        }
        for number, mine in ranks[0].items()
    }


def _whole(one: Held, others: Sequence[Held | None]) -> bool:
    return not one.model.startswith(_SHARDED) and all(
        other is not None and (other.name, other.numel) == (one.name, one.numel) for other in others
    )


def differing(sides: Sequence[Mapping[str, str]], keys: Sequence[str]) -> tuple[str, ...]:
    """The keys whose digests are known on all sides and are not all the same."""
    return tuple(key for key in keys if all(key in side for side in sides) and len({side[key] for side in sides}) > 1)


def titles(keys: Sequence[str], parameters: Mapping[str, Held]) -> str:
    """`2 of 4 parameters (0.weight, 0.bias)`, at most three by name."""
    names = [parameters[key].title for key in keys[:3]] + ["..."] * (len(keys) > 3)
    return f"{len(keys)} of {len(parameters)} parameters ({', '.join(names)})"


def both_sides(trace: Trace, events: Sequence[Event], say: Callable[[int], str]) -> tuple[Witness, ...]:
    """A witness for each rank; `say` gives its words by its position."""
    return tuple(
        Witness(say(index), rank.rank, event.step, place(event))
        for index, (rank, event) in enumerate(zip(trace.ranks, events, strict=True))
    )
