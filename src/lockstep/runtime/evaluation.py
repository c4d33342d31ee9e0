"""Evaluation that gives the same number at every N: whole batches dealt out, states merged in the order of batches."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.data.transfer import ahead
from lockstep.runtime.loss import Term
from lockstep.runtime.parallel.wrapped import Plain, Wrapped
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.stopping import Agreement, GivenUp
from lockstep.runtime.world import World

if TYPE_CHECKING:
    from torchmetrics import Metric

# One batch's share of a state: a tensor, or the list of a state that is concatenated.
Share = Tensor | list[Tensor]


class MergedMetric:
    """A torchmetrics object whose state is taken batch by batch and merged over all ranks.

    Sums of integers are exact in any order. Sums of floats are not: they are kept by batch and added in float64 in the
    order of the batches, so that N = 1, 2, 3 ... give the same last digit.
    """

    def __init__(self, name: str, metric: "Metric | Any") -> None:
        from torchmetrics import Metric

        if not isinstance(metric, Metric):
            seen = f"metric {name!r} is a {type(metric).__name__}"
            must = "a torchmetrics Metric; give those of a collection one by one"
            raise UserError(explain(seen, must, "recipe.metrics()"))
        if not metric._reductions or any(isinstance(part, Metric) for part in list(metric.modules())[1:]):
            seen = f"metric {name!r}: {type(metric).__name__} keeps its state in other metrics"
            raise UserError(explain(seen, "a metric with states of its own", "recipe.metrics()", "give the inner ones"))
        self.name, self.metric = name, metric
        self._sums: dict[str, Tensor] = {}
        self._ordered: dict[str, list[tuple[int, Share]]] = {}
        for state, reduce in metric._reductions.items():
            if _kind(reduce) not in _MERGES:
                seen = f"metric {name!r}: state {state!r} of {type(metric).__name__} cannot be merged over ranks"
                raise UserError(explain(seen, "a sum, concatenation, maximum or minimum", "recipe.metrics()"))

    def take(self, batch: int) -> None:
        """Move what the metric has gathered from one batch out of it."""
        for state, reduce in self.metric._reductions.items():
            value: Any = getattr(self.metric, state)
            if _is_whole_sum(reduce, value):
                held = self._sums.get(state)
                self._sums[state] = value.detach().clone() if held is None else held.add_(value)
            else:
                self._ordered.setdefault(state, []).append((batch, _detached(value)))
        self.metric.reset()

    def drop(self) -> None:
        """Forget what the metric has gathered from one batch."""
        self.metric.reset()

    def compute(self, world: World) -> dict[str, float]:
        """The metric over the whole evaluation set; the same on every rank."""
        for state, reduce in self.metric._reductions.items():
            default = _moved(self.metric._defaults[state], torch.device("cpu"))
            if _is_whole_sum(reduce, default):
                held = self._sums.get(state)
                merged = world.sum(default.clone() if held is None else held.cpu())
            else:
                shares = in_order(world.gather(_on_host(self._ordered.get(state, []))))
                merged = _MERGES[_kind(reduce)](shares, default)
            setattr(self.metric, state, _moved(merged, self.metric.device))
        # compute() warns where update() was not called, which is true of a rank without a batch, and would add up the
        # states of all ranks once more.
        self.metric._update_count = 1
        self.metric._to_sync = False
        return dict(_scalars(self.name, self.metric.compute()))


def in_order(ranks: list[list[tuple[int, Any]]]) -> list[Any]:
    """The shares of all ranks in the order of their batches."""
    return [share for _, share in sorted((pair for rank in ranks for pair in rank), key=lambda pair: pair[0])]


def ordered_sum(shares: list[Any], default: Any) -> Tensor:
    """The sum in float64, first batch first."""
    total = torch.as_tensor(default, dtype=torch.float64).clone()
    for share in shares:
        total += share.double()
    return total


def _concatenated(shares: list[Any], default: Any) -> Any:
    return [item for share in shares for item in (share if isinstance(share, list) else [share])]


_MERGES: dict[str, Callable[[list[Any], Any], Any]] = {
    "dim_zero_sum": ordered_sum,
    "dim_zero_cat": _concatenated,
    "dim_zero_max": lambda shares, default: torch.stack([*shares, default]).amax(0) if shares else default,
    "dim_zero_min": lambda shares, default: torch.stack([*shares, default]).amin(0) if shares else default,
}


def _kind(reduce: Any) -> str:
    """The name of torchmetrics' own function that reduces a state; another function is not known by it."""
    own = getattr(reduce, "__module__", "") == "torchmetrics.utilities.data"
    return str(reduce.__name__) if own else ""


def _is_whole_sum(reduce: Any, value: Any) -> bool:
    """Whether a state is a sum of integers, exact in any order."""
    return _kind(reduce) == "dim_zero_sum" and isinstance(value, Tensor) and not value.is_floating_point()


def _detached(value: Any) -> Share:
    return [item.detach() for item in value] if isinstance(value, list) else value.detach().clone()


def _on_host(shares: list[tuple[int, Share]]) -> list[tuple[int, Any]]:
    return [(batch, _moved(share, torch.device("cpu"))) for batch, share in shares]


def _moved(value: Any, device: torch.device) -> Any:
    return [item.to(device) for item in value] if isinstance(value, list) else value.to(device)


def _scalars(name: str, value: Any) -> Iterable[tuple[str, float]]:
    """A metric's result as named numbers: a vector by position, a mapping by key."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _scalars(f"{name}/{key}", item)
    elif isinstance(value, Tensor) and value.numel() != 1:
        for i, item in enumerate(value.flatten().tolist()):
            yield f"{name}/{i}", item
    else:
        yield name, float(value)


def check_metrics(recipe: Recipe) -> None:
    """Refuse metrics that nobody updates: they would all be 0.

    Raises:
        UserError: where a recipe has `metrics` and the base's `evaluate`, which gives the loss alone.
    """
    kind = type(recipe)
    if kind.metrics is not Recipe.metrics and kind.evaluate is Recipe.evaluate:
        must = "evaluate(model, batch, metrics) updates each metric and returns the loss terms"
        next_step = 'write it: metrics["NAME"].update(...), then return self.loss(model, batch)'
        raise UserError(explain(f"{kind.__name__} has metrics() and no evaluate()", must, "recipe", next_step))


@torch.no_grad()
def evaluate(
    model: nn.Module,
    recipe: Recipe,
    batches: Iterable[Any],
    numbers: Collection[int],
    world: World,
    precision: Precision,
    channels_last: bool = False,
    stop_asked: Callable[[], bool] | None = None,
    replica: Wrapped | None = None,
) -> dict[str, float]:
    """Loss and metrics over a whole evaluation set.

    Args:
        model: the unwrapped model; its buffers are the same on every rank.
        recipe: gives `metrics` and `evaluate`.
        batches: this rank's batches.
        numbers: the number of each of them in the whole set.
        world: the ranks; all call this together.
        precision: the format of the forward.
        channels_last: as in training.
        stop_asked: whether this rank was asked to stop; None where nobody asks.
        replica: the wrapped task, where a forward must go through it. Where its forwards are paired, a rank with fewer
            batches repeats one for the others' sake, which counts nothing.

    Returns:
        `val/loss`, `val/<metric>`; equal on every rank and to the last digit at every N.

    Raises:
        GivenUp: on all ranks, where one was asked to stop between two batches.
    """
    merged = [MergedMetric(f"val/{name}", metric) for name, metric in recipe.metrics().items()]
    metrics = {one.name.removeprefix("val/"): one.metric.to(world.device) for one in merged}
    wrapped = replica or Plain(model, recipe)
    losses: list[tuple[int, dict[str, Term]]] = []
    own = _until_stopped(batches, numbers, world, stop_asked)
    hosts = _evened(own, numbers, world) if wrapped.paired else own
    pairs = ahead(hosts, world.device, precision.dtype, channels_last)
    left = iter(numbers)
    with wrapped.evaluating():
        for _, batch in pairs:
            number = next(left, None)
            assert number is not None or wrapped.paired, "more batches than numbers"
            with precision.autocast():
                terms = dict(wrapped.evaluate(batch, metrics))
            for metric in merged:
                metric.drop() if number is None else metric.take(number)
            if number is not None:
                losses.append((number, terms))
    assert next(left, None) is None, "fewer batches than numbers"
    result = _mean_losses(in_order(world.gather(_plain(losses))))
    for metric in merged:
        result |= metric.compute(world)
    return result


def _evened(batches: Iterable[Any], numbers: Collection[int], world: World) -> Iterator[Any]:
    """As many batches on every rank: one with fewer repeats its last, one with none takes rank 0's first."""
    counts = world.gather(len(numbers))
    left = max(counts) - len(numbers)
    batch = None
    for i, batch in enumerate(batches):
        if i == 0 and not min(counts):
            world.broadcast(batch)
        yield batch
    if not numbers and max(counts):
        batch = world.broadcast(None)
    for _ in range(left):
        yield batch


def _until_stopped(
    batches: Iterable[Any], numbers: Collection[int], world: World, stop_asked: Callable[[], bool] | None
) -> Iterator[Any]:
    """The batches; all ranks give up before the same one. One rank may have a batch more than another."""
    if stop_asked is None:
        yield from batches
        return
    common = min(world.gather(len(numbers)))
    agreement = Agreement(world, stop_asked)
    for i, batch in enumerate(batches):
        if i < common and agreement.stop():
            agreement.close()
            raise GivenUp
        yield batch
    agreement.close()


Numbers = tuple[float, float, float]


def _plain(losses: list[tuple[int, dict[str, Term]]]) -> list[tuple[int, dict[str, Numbers]]]:
    """Each batch's terms as plain (sum, count, weight)."""
    return [(k, {name: (float(t.sum), float(t.count), t.weight) for name, t in terms.items()}) for k, terms in losses]


def _mean_losses(batches: list[dict[str, Numbers]]) -> dict[str, float]:
    """`val/loss` and, where there are several terms, each of them."""
    sums: dict[str, list[float]] = {}
    for terms in batches:
        for name, (value, count, weight) in terms.items():
            held = sums.setdefault(name, [0.0, 0.0, weight])
            held[0], held[1] = held[0] + value, held[1] + count
    means = {name: (value / count if count else 0.0) for name, (value, count, _) in sums.items()}
    result = {"val/loss": sum(sums[name][2] * mean for name, mean in means.items())}
    return result if len(means) < 2 else result | {f"val/loss/{name}": mean for name, mean in means.items()}
