"""The counts of a step over all ranks: what each loss term is divided by, at the least cost that its kind allows."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.loss import Count, CountSum, Term
from lockstep.runtime.parallel.local import local
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.world import World

Kind = Literal["carried", "known", "returned"]

_STOP = "\0stop"  # no term has such a name


@dataclass(frozen=True)
class Counting:
    """How the counts of a run reach all ranks; chosen once, from the terms of the rehearsal.

    Attributes:
        kind: `carried`: one term with a whole count; the gradients are divided by it after their reduction, which
            carries it. `known`: `recipe.counts` tells them from the batch; summed while the forward runs. `returned`:
            only the loss tells them; summed between forward and backward.
        scale: the usual count, which stands in for it during backward; a step that has it needs no correction.
    """

    kind: Kind
    scale: float = 1.0

    @staticmethod
    def of(
        terms: Mapping[str, Term], known: Mapping[str, Count] | None, lane: bool, micro: int, world: World
    ) -> "Counting":
        """Choose for the terms of one micro-batch.

        Args:
            terms: what the recipe's loss returned.
            known: what its `counts` returned.
            lane: whether gradients can carry a number.
            micro: micro-steps of a full step.
            world: the ranks; all call this together.
        """
        mine = sorted(terms), all(_whole(term.count) for term in terms.values()), known is not None
        ranks = world.gather(mine)
        if any(other != ranks[0] for other in ranks):
            each = "; ".join(f"rank {r}: {', '.join(names)}" for r, (names, *_) in enumerate(ranks))
            must = "the same terms with the same kind of counts (whole or not) on every rank, also without an element"
            raise UserError(
                explain(f"the loss has other terms or kinds of counts by rank ({each})", must, "recipe.loss")
            )
        total = sum(CountSum({name: float(t.count) for name, t in terms.items()}, world).wait().values()) * micro
        scale = total or 1.0
        if len(terms) == 1 and lane and mine[1]:
            return Counting("carried", scale)
        return Counting("known" if known is not None else "returned", scale)

    def start(self, recipe: Recipe, hosts: Sequence[Any], world: World, stop: bool = False) -> "StepCounts":
        """The counts of one step over this rank's micro-batches; a wish to stop travels with those that are summed."""
        if self.kind == "carried":
            return CarriedCount(self.scale)
        if self.kind == "known":
            return KnownCounts(recipe, hosts, world, stop)
        return ReturnedCounts(self.scale, len(hosts), world, stop)


def _whole(count: Count) -> bool:
    return isinstance(count, int) or (isinstance(count, Tensor) and not count.is_floating_point())


class StepCounts(ABC):
    """The counts of one optimizer step. `stop`: whether any rank had the wish to, once the counts are summed."""

    waited_s = 0.0
    stop = False

    @abstractmethod
    def totals(self, terms: Mapping[str, Term]) -> Mapping[str, float]:
        """What each term is divided by in the backward of a micro-step."""

    def carried(self) -> int | Tensor:
        """This rank's count, for the gradients to carry."""
        return 0

    @abstractmethod
    def settle(self, carried: int, grads: list[Tensor]) -> Mapping[str, float]:
        """After the last backward: put the gradients right; the counts over all ranks."""


class CarriedCount(StepCounts):
    """One term, its count carried by the gradients themselves: no collective of its own."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.name: str | None = None
        self.mine: int | Tensor = 0

    def totals(self, terms: Mapping[str, Term]) -> Mapping[str, float]:
        """The stand-in."""
        (name, term), *more = terms.items()
        if more or self.name not in (None, name) or not _whole(term.count):
            raise UserError(_changed(terms))
        self.name = name
        self.mine = self.mine + term.count  # type: ignore[assignment]
        return {name: self.scale}

    def carried(self) -> int | Tensor:
        """The count over this rank's micro-steps."""
        return self.mine

    def settle(self, carried: int, grads: list[Tensor]) -> Mapping[str, float]:
        """Replace the stand-in by the count of all ranks."""
        assert self.name is not None
        rescale(grads, self.scale, carried)
        return {self.name: float(carried)}


class KnownCounts(StepCounts):
    """Counts that the batches tell, on their way while the forward runs."""

    def __init__(self, recipe: Recipe, hosts: Sequence[Any], world: World, stop: bool = False) -> None:
        sums: dict[str, float] = {}
        for host in hosts:
            for name, count in (recipe.counts(host) or {}).items():
                sums[name] = sums.get(name, 0.0) + float(count)
        self._coming = CountSum({**sums, _STOP: float(stop)}, world)
        self._totals: dict[str, float] | None = None

    def totals(self, terms: Mapping[str, Term]) -> Mapping[str, float]:
        """The counts over all ranks."""
        if self._totals is None:
            start = time.perf_counter()
            self._totals = self._coming.wait()
            self.stop = self._totals.pop(_STOP) > 0
            self.waited_s += time.perf_counter() - start
        if terms.keys() != self._totals.keys():
            raise UserError(_changed(terms))
        return self._totals

    def settle(self, carried: int, grads: list[Tensor]) -> Mapping[str, float]:
        """Nothing is left to do."""
        assert self._totals is not None
        return self._totals


class ReturnedCounts(StepCounts):
    """Counts that only the loss tells. One term is divided by a stand-in until the last forward has told it all."""

    def __init__(self, scale: float, num_micro: int, world: World, stop: bool = False) -> None:
        self.scale, self.num_micro, self.world, self._wish = scale, num_micro, world, stop
        self._mine: dict[str, float] = {}
        self._totals: dict[str, float] | None = None

    def totals(self, terms: Mapping[str, Term]) -> Mapping[str, float]:
        """The counts over all ranks with one micro-step, the stand-in with several."""
        for name, term in terms.items():
            self._mine[name] = self._mine.get(name, 0.0) + float(term.count)
        if self.num_micro == 1:
            return self._sum()
        if len(terms) > 1:
            seen = f"a loss of {len(terms)} terms with {self.num_micro} micro-steps and no counts(batch)"
            must = "with accumulation and several terms, the recipe tells each count from the batch"
            raise UserError(explain(seen, must, "recipe", "write counts(batch), or use one term"))
        return dict.fromkeys(terms, self.scale)

    def settle(self, carried: int, grads: list[Tensor]) -> Mapping[str, float]:
        """Replace the stand-in, where there was one."""
        if self._totals is None:
            (total,) = self._sum().values()
            rescale(grads, self.scale, total)
        assert self._totals is not None
        return self._totals

    def _sum(self) -> dict[str, float]:
        start = time.perf_counter()
        self._totals = CountSum({**self._mine, _STOP: float(self._wish)}, self.world).wait()
        self.stop = self._totals.pop(_STOP) > 0
        self.waited_s += time.perf_counter() - start
        return self._totals


def rescale(grads: list[Tensor], scale: float, total: float) -> None:
    """Turn gradients divided by `scale` into gradients divided by `total`; 0 / 0 is 0."""
    if grads and total != scale:
        torch._foreach_mul_([local(grad) for grad in grads], scale / total if total > 0 else 0.0)


def gradients(params: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradients that there are."""
    return [p.grad for p in params if p.grad is not None]


def _changed(terms: Mapping[str, Term]) -> str:
    seen = f"the loss has the terms {sorted(terms)} in this step, and had others before or in counts(batch)"
    return explain(seen, "the same names and kinds of counts in every step on every rank", "recipe.loss")
