"""The mirror lemma (SAME): every rank is fed the reference's whole batch, and everything is equal bit for bit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lockstep.core.finding import Place
from lockstep.core.proof import Difference
from lockstep.proof import values
from lockstep.proof.align import StepView, left_out, paired, parameter_names, views
from lockstep.proof.takes import Take
from lockstep.trace.events import Backward, Batch, Buffers, Collective, Forward, Module
from lockstep.trace.sink import read_tensor
from lockstep.trace.trace import RankTrace


@dataclass(frozen=True)
class Mirrored:
    """What a mirror take shows.

    Attributes:
        steps: optimizer steps that were compared on all ranks and are equal.
        differences: at the first step that is not, in the order in which a step happens.
        factor: the gradient is this number times the reference's, at the first differing step; else None.
        talks: the program exchanges values between ranks inside that step, so that its arithmetic depends on them.
    """

    steps: int
    differences: tuple[Difference, ...] = ()
    factor: float | None = None
    talks: bool = False

    @property
    def exact(self) -> bool:
        """No difference at all, in at least one step."""
        return self.steps > 0 and not self.differences

    @property
    def share_dependent(self) -> bool:
        """The forward is the same and only the arithmetic after it differs, in a way that right programs have."""
        early = any(one.what in ("start", "batch", "output") for one in self.differences)
        return not early and (self.factor is not None or self.talks)


def compare(reference: Take, take: Take) -> Mirrored:
    """The reference's one process against every rank of a mirror take."""
    one = reference.trace.ranks[0]
    names = parameter_names(one)
    ranks = [paired(one, rank) for rank in take.trace.ranks]
    for rank, pairs in zip(take.trace.ranks, ranks, strict=True):
        if not pairs and views(one):
            return Mirrored(0, (_no_steps(rank),))
    steps = min((len(pairs) for pairs in ranks), default=0)
    for rank in take.trace.ranks:
        if (lost := passed_over(one, rank)) is not None:
            return Mirrored(0, (lost,))
    for count in range(steps):
        for number, pairs in enumerate(ranks):
            wanted, seen = pairs[count]
            found = _differences(reference, take, number, wanted, seen, names)
            if found:
                # What one rank did to its batch reaches the others by the gradients: look for the first cause on all.
                first = next(
                    (at for rank, pairs in enumerate(ranks) if (at := early(reference, take, rank, *pairs[count]))), []
                )
                found = [*_of(found, "start"), *first, *_loss(number, wanted, seen), *_of(found, "")]
                factor = values.factor(values.gradients(reference, 0, wanted), values.gradients(take, number, seen))
                return Mirrored(count, tuple(found), factor, _talks(seen))
    if not steps:
        return Mirrored(0)
    return Mirrored(steps, tuple(islice((*_other_length(one, take.trace.ranks), *_buffers(one, take.trace.ranks)), 1)))


def _buffers(one: RankTrace, ranks: Sequence[RankTrace]) -> Iterator[Difference]:
    """Running statistics and the like, which no gradient shows, where both have stopped after the same steps."""
    wanted = _last_buffers(one)
    for rank in ranks:
        mine = _last_buffers(rank)
        if len(views(rank)) != len(views(one)) or mine.keys() != wanted.keys():
            continue
        for model, digests in wanted.items():
            name = next((name for name in digests if mine[model].get(name) != digests[name]), None)
            if name is not None:
                step = len(views(one)) - 1
                yield Difference(
                    step, "buffer", name, rank.rank, "another value after the last step", "the reference's"
                )


def _last_buffers(rank: RankTrace) -> dict[int, Mapping[str, str]]:
    return {event.model: event.digests for event in rank.of(Buffers) if event.when == "end"}


def passed_over(one: RankTrace, rank: RankTrace) -> Difference | None:
    """A step of the reference that a rank did not make, though it went on."""
    lost = left_out(one, rank)
    if lost is None:
        return None
    wanted = f"step {lost.step.number} of optimizer {lost.step.optimizer} ({lost.step.at})"
    return Difference(lost.step.step, "step", "", rank.rank, "no such step", wanted)


def _other_length(one: RankTrace, ranks: Sequence[RankTrace]) -> Iterator[Difference]:
    """A rank that ends by itself while the reference goes on, or the other way round."""
    wanted = len(views(one))
    for rank in ranks:
        mine = len(views(rank))
        if mine < wanted and _ended(rank):
            yield Difference(mine, "step", "", rank.rank, f"the end, after {mine} steps", "a further step")
        if mine > wanted and _ended(one):
            yield Difference(wanted, "step", "", rank.rank, "a further step", f"the end, after {wanted} steps")


def _ended(rank: RankTrace) -> bool:
    return rank.end is not None and rank.end.how in ("returned", "exited")


def _of(found: list[Difference], what: str) -> list[Difference]:
    """Those at the start, or all others."""
    return [one for one in found if (one.what == "start") == (what == "start")]


def _no_steps(rank: RankTrace) -> Difference:
    return Difference(0, "step", rank=rank.rank, seen="no optimizer step", wanted="the reference has some")


def _talks(view: StepView) -> bool:
    return any(True for event in view.of(Collective) if event.op != "barrier")


def _differences(
    reference: Take, take: Take, rank: int, wanted: StepView, seen: StepView, names: Mapping[tuple[int, str], str]
) -> list[Difference]:
    """All that differs at one step; nothing where gradients, rates and parameters are equal."""
    number = wanted.step.step
    place = Place.parse(seen.step.at)
    found = [
        *_start(reference, take, rank, wanted, seen, names),
        *_gradients(reference, take, rank, wanted, seen, names),
    ]
    if wanted.step.lr != seen.step.lr:
        found.append(Difference(number, "lr", "", rank, _rates(seen.step.lr), _rates(wanted.step.lr), place=place))
    after = [] if found else _unequal(wanted.step.after, seen.step.after)
    if after:
        after = _beyond_tiny(after, values.parameters(reference, 0, wanted), values.parameters(take, rank, seen))
    if after:
        name = names.get((wanted.step.optimizer, after[0]), after[0])
        found.append(Difference(number, "parameter", name, rank, *_pair(reference, take, rank, wanted, seen, after[0])))
    return found


def _unequal(wanted: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    return [key for key in (*wanted, *(key for key in seen if key not in wanted)) if wanted.get(key) != seen.get(key)]


def _beyond_tiny(keys: list[str], one: values.Values, other: values.Values) -> list[str]:
    return [key for key in keys if not values.negligible(one.arrays.get(key), other.arrays.get(key))]


def _start(
    reference: Take, take: Take, rank: int, wanted: StepView, seen: StepView, names: Mapping[tuple[int, str], str]
) -> list[Difference]:
    if wanted.step.number or not (keys := _unequal(wanted.step.before, seen.step.before)):
        return []
    one, other = values.starts(reference, 0, wanted), values.starts(take, rank, seen)
    key = keys[0]
    texts = [values.shown(side.arrays[key]) if key in side.arrays else "none" for side in (other, one)]
    error = values.total(values.errors(one, other))
    name = names.get((wanted.step.optimizer, key), key)
    return [Difference(wanted.step.step, "start", name, rank, texts[0], texts[1], error)]


def _gradients(
    reference: Take, take: Take, rank: int, wanted: StepView, seen: StepView, names: Mapping[tuple[int, str], str]
) -> list[Difference]:
    keys = _unequal(wanted.step.grads, seen.step.grads)
    if not keys:
        return []
    one, other = values.gradients(reference, 0, wanted), values.gradients(take, rank, seen)
    keys = _beyond_tiny(keys, one, other)
    errors = values.errors(one, other)
    found = []
    for key in sorted(keys, key=lambda key: -errors.get(key, 0.0))[:3]:
        texts = [values.shown(side.arrays[key]) if key in side.arrays else "no gradient" for side in (other, one)]
        name = names.get((wanted.step.optimizer, key), key)
        place = Place.parse(seen.step.at)
        found.append(Difference(wanted.step.step, "gradient", name, rank, texts[0], texts[1], errors.get(key), place))
    return found


def _pair(
    reference: Take, take: Take, rank: int, wanted: StepView, seen: StepView, key: str
) -> tuple[str, str, float | None]:
    one, other = values.parameters(reference, 0, wanted), values.parameters(take, rank, seen)
    if key not in one.arrays or key not in other.arrays:
        return "another value", "the reference's", None
    return values.shown(other.arrays[key]), values.shown(one.arrays[key]), values.errors(one, other).get(key)


def early(reference: Take, take: Take, rank: int, wanted: StepView, seen: StepView) -> list[Difference]:
    """What differs before the loss: the batch, then the first module whose output does."""
    number = wanted.step.step
    for count, (one, other) in enumerate(zip(wanted.of(Batch), seen.of(Batch), strict=False)):
        if one.grad and one.rows and other.rows and one.rows != other.rows:
            return [_batch(number, rank, count, one, other)]
    outputs = {(event.model, event.name, event.call): event for event in seen.of(Module)}
    for event in wanted.of(Module):
        other_output = outputs.get((event.model, event.name, event.call))
        if other_output is not None and other_output.digest != event.digest:
            return [_output(reference, take, number, rank, event, other_output)]
    inputs = [[event.inputs for event in view.of(Forward) if event.grad] for view in (wanted, seen)]
    if inputs[0] and inputs[1] and inputs[0] != inputs[1]:
        place = Place.parse(next(event.at for event in seen.of(Forward)))
        return [Difference(number, "input", "of the model", rank, "another", "the reference's", place=place)]
    return []


def _output(reference: Take, take: Take, number: int, rank: int, event: Module, other: Module) -> Difference:
    one = read_tensor(reference.folder, 0, event.tensor)
    seen = read_tensor(take.folder, rank, other.tensor)
    texts = _text(seen), _text(one)
    error = None
    if one is not None and seen is not None and one.shape == seen.shape:
        error = values.total(values.errors(values.single(one), values.single(seen)))
    return Difference(number, "output", event.name or "the model", rank, *texts, error, Place.parse(other.at))


def _text(value: values.Array | None) -> str:
    return values.shown(value) if value is not None else "not kept"


def _batch(number: int, rank: int, count: int, one: Batch, other: Batch) -> Difference:
    path = next((path for path in one.rows if one.rows[path] != other.rows.get(path)), "")
    rows, others = one.rows[path], other.rows.get(path, ())
    row = next((index for index, (a, b) in enumerate(zip(rows, others, strict=False)) if a != b), 0)
    sample = one.ids[row] if one.ids is not None and row < len(one.ids) else row
    seen = f"sample {sample}, element {path} of batch {count}: another content"
    return Difference(
        number, "batch", path, rank, seen, "the same content as in the reference", None, Place.parse(other.at)
    )


def _loss(rank: int, wanted: StepView, seen: StepView) -> list[Difference]:
    for one, other in zip(wanted.of(Backward), seen.of(Backward), strict=False):
        if one.loss is not None and other.loss is not None and one.loss != other.loss:
            error = abs(one.loss - other.loss) / abs(one.loss) if one.loss else None
            texts = f"{other.loss:.9g}", f"{one.loss:.9g}"
            return [Difference(wanted.step.step, "loss", "", rank, *texts, error, Place.parse(other.at))]
    return []


def _rates(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates)
