"""The running average of the weights (EMA): evaluated in their place, saved beside them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config import EmaConfig
from lockstep.runtime.parallel.local import local
from lockstep.runtime.state.fellows import fitted
from lockstep.runtime.state.tensors import clean_names, weights_of


def rate(decay: float, updates: int) -> float:
    """The decay of one update: it grows to its full value, or early weights would stay in the average for long.

    Args:
        decay: of the config.
        updates: how many weights the average holds already.
    """
    return min(decay, (1 + updates) / (10 + updates))


class Ema:
    """The average of every trainable weight, in float32 at least. Frozen weights and buffers are the model's own.

    Args:
        model: the unwrapped model in its final place; of a shard, the average is a shard.
        config: the section `ema`, with a decay.

    Attributes:
        updates: weights averaged so far; with none, the average is the weights as they are.
    """

    def __init__(self, model: nn.Module, config: EmaConfig) -> None:
        assert config.decay is not None
        self.decay, self.start_step = config.decay, config.start_step
        self.updates = 0
        self._model = model
        self._params = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
        self._means = [_mean_of(p) for p in self._params]

    @staticmethod
    def of(model: nn.Module, config: EmaConfig) -> "Ema | None":
        """The average that a config asks for, None where it asks for none."""
        return None if config.decay is None else Ema(model, config)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights into the average; call it after each optimizer step that has changed them.

        Args:
            step: optimizer steps done, this one counted.
        """
        if step <= self.start_step:
            return
        means = [local(mean) for mean in self._means]
        weights = [local(p).to(mean.dtype) for p, mean in zip(self._params, means, strict=True)]
        if self.updates == 0:
            torch._foreach_copy_(means, weights)
        else:
            torch._foreach_lerp_(means, weights, 1 - rate(self.decay, self.updates))
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the average in place of its weights; they come back bit by bit. No weight is kept twice."""
        if self.updates == 0:
            yield
            return
        rounded = self._exchange()
        try:
            yield
        finally:
            self._exchange(rounded)

    @torch.no_grad()
    def _exchange(self, back: list[Tensor | None] | None = None) -> list[Tensor | None]:
        """Swap weights and averages; a weight of a lower type, which cannot hold its average, is copied aside."""
        kept: list[Tensor | None] = []
        for i, (param, average) in enumerate(zip(self._params, self._means, strict=True)):
            weight, mean = local(param), local(average)
            if weight.dtype != mean.dtype:
                kept.append(weight.clone())
                weight.copy_(mean if back is None else back[i])  # type: ignore[arg-type]
                continue
            kept.append(None)
            held = weight.clone()
            weight.copy_(mean)
            mean.copy_(held)
        return kept

    def tensors(self, old: Mapping[str, Tensor] | None = None, keep: bool = True) -> dict[str, Tensor]:
        """The whole model by clean name with averages in place of weights, in host memory.

        Args:
            old, keep: as of `weights_of`, which all ranks call together where parameters are shards.
        """
        pairs = zip(self._params, self._means, strict=True) if self.updates else ()
        return weights_of(self._model, old, keep, {id(param): mean for param, mean in pairs})[0]

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], updates: int, source: str) -> None:
        """Go on with a saved average.

        Args:
            tensors: by clean name, under all names of a tied weight.
            updates: weights that it holds.
            source: where it comes from, for messages.

        Raises:
            UserError: where it is of another architecture.
        """
        self.updates = updates
        state = self._model.state_dict(keep_vars=True)
        names = clean_names(state)
        name_of = {id(value): names[raw] for raw, value in reversed(state.items())}
        for param, mean in zip(self._params, self._means, strict=True):
            name = name_of[id(param)]
            value = tensors.get(name)
            if value is None or value.shape != param.shape:
                seen = f"{source} has no {name}" if value is None else f"{name} is {tuple(value.shape)} in {source}"
                raise UserError(explain(seen, f"the average of {name}, {tuple(param.shape)}", "ema"))
            local(mean).copy_(local(fitted(value, mean)))


def _mean_of(param: Tensor) -> Tensor:
    wide = param.dtype if param.dtype in (torch.float32, torch.float64) else torch.float32
    return param.detach().to(wide, copy=True)
