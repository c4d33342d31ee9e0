"""Seeds that are set, and what state the generators are in at moments that ranks share."""

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lockstep.trace import seeds
from lockstep.trace.events import RandomState, Seed
from lockstep.trace.recorder import Recorder

_MANY = 8  # numpy and random are told for so many steps; their states are slow to read


def install(recorder: Recorder) -> None:
    """Hook the functions that seed."""
    torch_seed = _seeding(recorder, "torch")
    recorder.patch(torch.random, "manual_seed", torch_seed)
    torch.manual_seed = torch.random.manual_seed
    recorder.patch(np.random, "seed", _seeding(recorder, "numpy"))
    recorder.patch(random, "seed", _seeding(recorder, "random"))
    vars(torch)["Generator"] = _generator(recorder)
    recorder.patch(np.random, "default_rng", _tracked)


def _seeding(recorder: Recorder, lib: str) -> Callable[[Any], Any]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*args: Any, **kwargs: Any) -> Any:
            value = next((one for one in (*args, *kwargs.values()) if isinstance(one, int | np.integer)), None)
            if value is not None:
                recorder.emit(Seed(lib=lib, value=int(value)))
            return original(*args, **kwargs)

        return seed

    return make


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """torch's own generators, and copies of the script's, are torch.Generators too."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


def _generator(recorder: Recorder) -> type:
    class Generator(seeds.Generator, metaclass=_AnyGenerator):
        def manual_seed(self, seed: int) -> Any:
            if recorder.detailed:  # a dataset may seed one for every sample
                recorder.emit(Seed(lib="generator", value=int(seed)))
            return super().manual_seed(seed)

    Generator.__qualname__ = Generator.__name__ = "Generator"
    Generator.__module__ = "torch"
    return Generator


def _tracked(original: Callable[..., Any]) -> Callable[..., Any]:
    def default_rng(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if isinstance(made, seeds.NumpyGenerator):  # it was given one, and gives it back
            return made
        made = seeds.NumpyGenerator(made.bit_generator)
        seeds.track(made)
        return made

    return default_rng


def random_state(recorder: Recorder, when: str) -> None:
    """Tell the generators' states; numpy's and random's only in the first steps."""
    many = recorder.full or recorder.step < _MANY
    recorder.emit(
        RandomState(
            when=when,
            torch=f"{zlib.crc32(torch.default_generator.get_state().numpy().tobytes()):08x}",
            numpy=_numpy() if many else "",
            random=f"{hash(random.getstate()[1]) & 0xFFFFFFFF:08x}" if many else "",
        )
    )


def _numpy() -> str:
    state: Any = np.random.mtrand._rand._bit_generator.state
    inner = state["state"]
    return f"{zlib.crc32(inner['key'].tobytes() + str(inner['pos']).encode()):08x}" if "key" in inner else ""
