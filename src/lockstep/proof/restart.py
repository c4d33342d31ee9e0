"""A run that goes on from what an earlier one saved, beside the run that was never broken off."""

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.core.finding import Place
from lockstep.core.proof import Difference
from lockstep.proof import values
from lockstep.proof.align import StepView, parameter_names, samples, views
from lockstep.proof.takes import Take
from lockstep.trace.events import Batch, Buffers, Module, Scaler
from lockstep.trace.trace import RankTrace


@dataclass(frozen=True)
class Restart:
    """Where the second run goes on. done: {optimizer: steps that the unbroken run had made by then}."""

    done: Mapping[int, int]

    @property
    def total(self) -> int:
        """Steps over all optimizers."""
        return sum(self.done.values())


@dataclass(frozen=True)
class Continued:
    """What the comparison shows. steps: equal on every rank. differences: at the first step that is not."""

    steps: int
    differences: tuple[Difference, ...] = ()

    @property
    def kinds(self) -> set[str]:
        """What differs: `batch`, `lr`, `output`, `gradient`, `scale`, `parameter`, `buffer`, `steps`."""
        return {one.what for one in self.differences}


def locate(unbroken: RankTrace, resumed: RankTrace, saved: int) -> Restart | None:
    """The step of the unbroken run after which its parameters are those that the resumed run begins with.

    Args:
        saved: steps over all optimizers at the save: of several such steps the nearest to it is taken.
    """
    done = {}
    for number, first in _first_steps(resumed).items():
        near = sum(1 for view in views(unbroken) if view.step.optimizer == number and view.step.step < saved)
        found = [count for count, state in states(unbroken, number).items() if state == first.step.before]
        if not found:
            return None
        done[number] = min(found, key=lambda count: abs(count - near))
    return Restart(done) if done else None


def _first_steps(rank: RankTrace) -> dict[int, StepView]:
    return {view.step.optimizer: view for view in views(rank) if view.step.number == 0}


def states(rank: RankTrace, optimizer: int) -> dict[int, Mapping[str, str]]:
    """{steps done: digests of the parameters then}."""
    found: dict[int, Mapping[str, str]] = {}
    for view in views(rank):
        if view.step.optimizer == optimizer:
            if view.step.number == 0:
                found[0] = view.step.before
            found[view.step.number + 1] = view.step.after
    return found


def strangers(unbroken: RankTrace, resumed: RankTrace) -> tuple[int, list[str], int]:
    """(steps, parameters that are not the unbroken run's after so many steps, parameters in all), where fewest are."""
    best: tuple[int, list[str], int] = (0, [], 0)
    for number, first in _first_steps(resumed).items():
        mine, names = first.step.before, parameter_names(resumed)
        for count, state in states(unbroken, number).items():
            other = [names.get((number, key), key) for key, digest in mine.items() if state.get(key) != digest]
            if not best[2] or len(other) < len(best[1]):
                best = count, other, len(mine)
    return best


def compare(unbroken: Take, resumed: Take, restart: Restart, data: bool = True, ends: bool = True) -> Continued:
    """The resumed run's steps against the unbroken run's after the restart, rank by rank.

    Args:
        data: whether other sample indices are a difference.
        ends: whether both are to make as many steps, where they came to their ends, and to end with the same buffers.
    """
    equal = []
    for one, rank in zip(unbroken.trace.ranks, resumed.trace.ranks, strict=True):
        mine = {view.key: view for view in views(one)}
        names = parameter_names(one)
        count = 0
        for seen in views(rank):
            wanted = mine.get((seen.step.optimizer, seen.step.number + restart.done.get(seen.step.optimizer, 0)))
            if wanted is None:
                break
            found = _differences(unbroken, resumed, rank.rank, wanted, seen, names, data)
            if found:
                return Continued(count, tuple(found))
            count += 1
        equal.append(count)
    steps = min(equal, default=0)
    return Continued(steps, tuple(_ends(unbroken, resumed, restart)) if ends else ())


def _differences(
    unbroken: Take,
    resumed: Take,
    rank: int,
    wanted: StepView,
    seen: StepView,
    names: Mapping[tuple[int, str], str],
    data: bool,
) -> list[Difference]:
    """All that differs at one step, in the order in which a step happens."""
    number, place = wanted.step.step, Place.parse(seen.step.at)
    found = [*_batches(number, rank, wanted, seen, data)]
    if wanted.step.lr != seen.step.lr:
        texts = ", ".join(f"{rate:.6g}" for rate in seen.step.lr), ", ".join(f"{rate:.6g}" for rate in wanted.step.lr)
        found.append(Difference(number, "lr", "", rank, *texts, place=place))
    grads = unequal(wanted.step.grads, seen.step.grads)
    after = unequal(wanted.step.after, seen.step.after)
    if grads:
        found += _outputs(number, rank, wanted, seen)
    optimizer = wanted.step.optimizer
    for what, keys, read in (("gradient", grads, values.gradients), ("parameter", after, values.parameters)):
        if keys and (what == "gradient" or not grads):
            one, other = read(unbroken, rank, wanted).arrays, read(resumed, rank, seen).arrays
            shown = [values.shown(side[keys[0]]) if keys[0] in side else "none" for side in (other, one)]
            name = names.get((optimizer, keys[0]), keys[0])
            found.append(Difference(number, what, name, rank, shown[0], shown[1], place=place))
    scales = [[event.scale for event in view.of(Scaler)] for view in (wanted, seen)]
    if scales[0] and scales[1] and scales[0][-1] != scales[1][-1]:
        found.append(Difference(number, "scale", "", rank, f"{scales[1][-1]:g}", f"{scales[0][-1]:g}", place=place))
    return found


def unequal(wanted: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """Keys with another digest, or only on one side."""
    return [key for key in (*wanted, *(key for key in seen if key not in wanted)) if wanted.get(key) != seen.get(key)]


def trained_on(view: StepView, count: int | None = None) -> list[Batch]:
    """The batches of a step; the last `count`: those before them were read and passed over."""
    taken = [batch for batch in view.of(Batch) if batch.grad]
    return taken if count is None else taken[len(taken) - count :] if count else []


def _batches(number: int, rank: int, wanted: StepView, seen: StepView, data: bool) -> list[Difference]:
    ours = trained_on(wanted)
    for one, other in zip(ours, trained_on(seen, len(ours)), strict=False):
        place = Place.parse(other.at)
        if data and samples(one) != samples(other):
            texts = _listed(other), _listed(one)
            return [Difference(number, "batch", "", rank, *texts, place=place)]
        if one.ids == other.ids and one.rows and other.rows and one.rows != other.rows:
            path = next((path for path in one.rows if one.rows[path] != other.rows.get(path)), "")
            text = "another content of the same samples"
            return [Difference(number, "content", path, rank, text, "the unbroken run's", place=place)]
    return []


def _listed(batch: Batch) -> str:
    if batch.ids is None:
        return "samples without an index"
    more = ", ..." if len(batch.ids) > 6 else ""
    return f"samples {', '.join(map(str, batch.ids[:6]))}{more}"


def _outputs(number: int, rank: int, wanted: StepView, seen: StepView) -> list[Difference]:
    for one, other in zip(wanted.of(Module), seen.of(Module), strict=False):
        if one.name == other.name and one.digest != other.digest:
            return [Difference(number, "output", one.name or "the model", rank, place=Place.parse(other.at))]
    return []


def _ends(unbroken: Take, resumed: Take, restart: Restart) -> list[Difference]:
    """Where both came to their end: as many steps, and the same buffers."""
    one, other = unbroken.trace.ranks[0], resumed.trace.ranks[0]
    if not all(rank.end is not None and rank.end.how in ("returned", "exited") for rank in (one, other)):
        return []
    total, mine = len(views(one)), restart.total + len(views(other))
    if total != mine:
        texts = f"{mine} steps together", f"{total} steps"
        return [Difference(min(total, mine), "steps", "", None, *texts)]
    last = [{event.model: event for event in rank.of(Buffers) if event.when == "end"} for rank in (one, other)]
    for model, event in last[0].items():
        keys = unequal(event.digests, last[1][model].digests) if model in last[1] else []
        if keys:
            text = "another value at the end"
            return [Difference(total, "buffer", keys[0], 0, text, "the unbroken run's")]
    return []
