"""The shard lemma (SCALE): rank r is fed its slice of the reference's batch, in float64."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lockstep.core.finding import Place
from lockstep.core.proof import Difference
from lockstep.proof import values
from lockstep.proof.align import StepView, paired, parameter_names, views
from lockstep.proof.mirror import passed_over
from lockstep.proof.takes import Take
from lockstep.trace.events import Backward, Batch, Module
from lockstep.trace.sink import read_tensor

BUG = 1e-9
"""Relative error beyond which a difference is none of rounding: right programs have 1e-16, wrong ones 1e-3 to 1."""
GROWTH = 1e3
"""Rounding grows from step to step, in deep networks with BatchNorm over few samples tenfold and more. What is beyond
BUG, and not beyond so many times the largest error before it, has grown; wrong programs jump."""
BLURRED = 1e-4
"""Where rounding may have grown to so much, further steps show nothing."""


TOO_LARGE = "one step's gradients and weights are more than is kept (1 GiB a rank): try a smaller model"


@dataclass(frozen=True)
class Sharded:
    """What a shard take shows.

    Attributes:
        steps: that agree. error: the largest relative error of a gradient over the steps that were compared, up to and
            with the first that differs.
        differences: at the first step that differs.
        kept: whether the values of the first step were; a large model fills what there is for them.
        factor: the gradient is this number times the reference's; else None.
        missed: parameters whose gradients differ between ranks. exact: parameters that agree with the reference.
    """

    steps: int
    error: float = 0.0
    differences: tuple[Difference, ...] = ()
    factor: float | None = None
    missed: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    kept: bool = True

    @property
    def passed(self) -> bool:
        """Equal but for rounding, in at least one step."""
        return self.steps > 0 and not self.differences


def compare(reference: Take, take: Take) -> Sharded:
    """The reference's one process against the ranks of a shard take."""
    one = reference.trace.ranks[0]
    names = parameter_names(one)
    worst, steps = 0.0, 0
    ranks = [{view.key: view for view in views(side)} for side in take.trace.ranks]
    pairs = paired(one, take.trace.ranks[0]) if take.trace.ranks else []
    for rank in take.trace.ranks:
        if (lost := passed_over(one, rank)) is not None:
            return Sharded(0, 0.0, (lost,))
    for count, (wanted, _) in enumerate(pairs):
        seen = [rank[wanted.key] for rank in ranks if wanted.key in rank]
        bug = max(BUG, GROWTH * worst)
        if len(seen) < len(ranks) or bug > BLURRED:
            break
        if not all(_kept(view) for view in (wanted, *seen)):
            if not steps:
                return Sharded(0, kept=False)
            break
        result = _step(reference, take, wanted, seen, names, bug)
        worst = max(worst, result.error)
        if result.differences:
            return Sharded(count, worst, result.differences, result.factor, result.missed, result.exact)
        steps += 1
    if not steps and views(one):
        return Sharded(0, 0.0, (Difference(0, "step", seen="no optimizer step", wanted="the reference has some"),))
    return Sharded(steps, worst)


def _kept(view: StepView) -> bool:
    return all(place >= 0 for places in (view.step.grad_tensors, view.step.param_tensors) for place in places.values())


def _step(
    reference: Take,
    take: Take,
    wanted: StepView,
    seen: list[StepView],
    names: Mapping[tuple[int, str], str],
    bug: float,
) -> Sharded:
    number, optimizer = wanted.step.step, wanted.step.optimizer
    truth = values.gradients(reference, 0, wanted)
    found = [values.gradients(take, rank, view) for rank, view in enumerate(seen)]
    errors = [values.errors(truth, one) for one in found]
    worst = max(range(len(seen)), key=lambda rank: values.total(errors[rank]))
    error = values.total(errors[worst])
    differences: list[Difference] = []
    if not wanted.step.number:
        differences += _start(reference, take, wanted, seen[0], names)
    if error > bug:
        differences += _outputs(reference, take, wanted, seen) or _losses(wanted, seen)
        differences += _worst(truth, found[worst], errors[worst], worst, wanted, seen[worst], names, bug)
    if wanted.step.lr != seen[0].step.lr and not _close(wanted.step.lr, seen[0].step.lr):
        texts = ", ".join(f"{rate:.6g}" for rate in seen[0].step.lr), ", ".join(f"{r:.6g}" for r in wanted.step.lr)
        differences.append(Difference(number, "lr", "", 0, *texts, place=Place.parse(seen[0].step.at)))
    if not differences:
        differences += _after(reference, take, wanted, seen, truth, names, bug)
    between = values.errors(found[0], found[-1]) if len(found) > 1 else {}
    missed = tuple(names.get((optimizer, key), key) for key, value in between.items() if value > bug)
    exact = tuple(names.get((optimizer, key), key) for key, value in errors[worst].items() if value <= bug)
    return Sharded(0, error, tuple(differences), values.factor(truth, found[worst]), missed, exact)


def _close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and all(abs(a - b) <= 1e-9 * abs(a) for a, b in zip(one, other, strict=True))


def _start(
    reference: Take, take: Take, wanted: StepView, seen: StepView, names: Mapping[tuple[int, str], str]
) -> list[Difference]:
    one, other = values.starts(reference, 0, wanted), values.starts(take, 0, seen)
    errors = values.errors(one, other)
    key = max(errors, key=lambda key: errors[key], default=None)
    if key is None or errors[key] <= BUG:
        return []
    texts = [values.shown(side.arrays[key]) if key in side.arrays else "none" for side in (other, one)]
    name = names.get((wanted.step.optimizer, key), key)
    return [Difference(wanted.step.step, "start", name, 0, texts[0], texts[1], values.total(errors))]


def _worst(
    truth: values.Values,
    found: values.Values,
    errors: Mapping[str, float],
    rank: int,
    wanted: StepView,
    seen: StepView,
    names: Mapping[tuple[int, str], str],
    bug: float,
) -> list[Difference]:
    result = []
    for key in sorted(errors, key=lambda key: -errors[key])[:3]:
        if errors[key] > bug / len(errors) ** 0.5:
            texts = [values.shown(side.arrays[key]) if key in side.arrays else "no gradient" for side in (found, truth)]
            name = names.get((wanted.step.optimizer, key), key)
            place = Place.parse(seen.step.at)
            result.append(Difference(wanted.step.step, "gradient", name, rank, texts[0], texts[1], errors[key], place))
    return result


def _after(
    reference: Take,
    take: Take,
    wanted: StepView,
    seen: list[StepView],
    truth: values.Values,
    names: Mapping[tuple[int, str], str],
    bug: float,
) -> list[Difference]:
    """Parameters after the step, without those whose true gradient is nothing: there an optimizer that normalises
    makes a full step of pure rounding."""
    scale = truth.norm or 1.0
    live = {key for key, one in truth.arrays.items() if np.linalg.norm(one) > 1e-10 * scale}
    one = values.parameters(reference, 0, wanted)
    for rank, view in enumerate(seen):
        errors = values.errors(one, values.parameters(take, rank, view))
        key = max((key for key in errors if key in live), key=lambda key: errors[key], default=None)
        if key is not None and errors[key] > 1e3 * bug:
            other = values.parameters(take, rank, view).arrays.get(key)
            texts = values.shown(other) if other is not None else "none", values.shown(one.arrays[key])
            name = names.get((wanted.step.optimizer, key), key)
            return [
                Difference(wanted.step.step, "parameter", name, rank, *texts, errors[key], Place.parse(view.step.at))
            ]
    return []


def _outputs(reference: Take, take: Take, wanted: StepView, seen: list[StepView]) -> list[Difference]:
    """The first module whose output, put together from the ranks, is not the reference's."""
    number = wanted.step.step
    for one, *others in zip(wanted.of(Batch), *(view.of(Batch) for view in seen), strict=False):
        mine = _rows([batch.rows for batch in others])
        if one.grad and one.rows and len(others[0].ids or ()) * len(seen) == len(one.ids or ()):
            # Rows that are padded to the longest of a slice are other rows, and no fault.
            padded = {path for path, shape in one.shapes.items() if any(b.shapes.get(path) != shape for b in others)}
            told = (path for path in one.rows if path in mine and path not in padded)
            path = next((path for path in told if mine[path] != one.rows[path]), None)
            if path is not None:
                row = next(
                    index
                    for index, pair in enumerate(zip(one.rows[path], mine[path], strict=False))
                    if pair[0] != pair[1]
                )
                sample = one.ids[row] if one.ids is not None else row
                text = f"sample {sample}, element {path}: another content"
                where = Place.parse(others[0].at)
                return [Difference(number, "batch", path, None, text, "the same content", None, where)]
    outputs = [{(event.model, event.name, event.call): event for event in view.of(Module)} for view in seen]
    for event in wanted.of(Module):
        parts = [mine.get((event.model, event.name, event.call)) for mine in outputs]
        truth = read_tensor(reference.folder, 0, event.tensor)
        if truth is None or any(part is None for part in parts):
            continue
        read = [read_tensor(take.folder, rank, part.tensor) for rank, part in enumerate(parts) if part is not None]
        arrays = [one for one in read if one is not None]
        joined = _joined(arrays, truth.shape) if len(arrays) == len(parts) else None
        if joined is None:
            continue
        error = values.total(values.errors(values.single(truth), values.single(joined)))
        if error > BUG:
            texts = values.shown(joined), values.shown(truth)
            where = Place.parse(parts[0].at) if parts[0] is not None else None
            return [Difference(number, "output", event.name or "the model", None, *texts, error, where)]
    return []


def _losses(wanted: StepView, seen: list[StepView]) -> list[Difference]:
    """Every output is right: does the mean of the ranks' losses differ?"""
    truth = [event.loss for event in wanted.of(Backward) if event.loss is not None]
    mine = [event for view in seen for event in view.of(Backward) if event.loss is not None]
    if not truth or not mine:
        return []
    one, other = sum(truth) / len(truth), sum(event.loss or 0.0 for event in mine) / len(mine)
    error = abs(one - other) / abs(one) if one else abs(other)
    if error <= BUG:
        return []
    texts = f"{other:.9g} (mean over the ranks)", f"{one:.9g}"
    return [Difference(wanted.step.step, "loss", "", None, *texts, error, Place.parse(mine[0].at))]


def _rows(ranks: list[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    return {path: tuple(row for rank in ranks for row in rank.get(path, ())) for path in ranks[0]} if ranks else {}


def _joined(arrays: list[values.Array], shape: tuple[int, ...]) -> values.Array | None:
    if any(one.ndim == 0 or one.shape[1:] != shape[1:] for one in arrays) or not shape:
        return None
    joined = np.concatenate(arrays)
    return joined if joined.shape == shape else None
