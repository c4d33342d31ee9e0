"""Setting every random generator that a script has, so that two runs draw the same numbers at the same place."""

import random
import weakref
import zlib
from typing import Any

import numpy as np
import torch

_generators: list[weakref.ref[Any]] = []
# As they are before the recorder hooks them.
_seed_numpy, _seed_random = np.random.seed, random.seed


class Generator(torch._C.Generator):  # type: ignore[name-defined,misc,unused-ignore]
    """torch.Generator that can be found again."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A generator, remembered."""
        made = super().__new__(cls, *args, **kwargs)
        track(made)
        return made


class NumpyGenerator(np.random.Generator):
    """numpy's generator, which by itself takes no weak reference."""


def track(generator: Any) -> None:
    """Remember a generator for `seed_all`."""
    _generators[:] = [one for one in _generators if one() is not None]
    _generators.append(weakref.ref(generator))


def seed_all(*key: object) -> None:
    """Seed torch, numpy, random, and every generator of the script by a key: equal keys give equal draws."""
    value = zlib.crc32(repr(key).encode())
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(value)
    _seed_numpy(value)
    _seed_random(value)
    for number, reference in enumerate(_generators):
        generator = reference()
        if isinstance(generator, torch._C.Generator):
            torch._C.Generator.manual_seed(generator, value + 1 + number)
        elif isinstance(generator, np.random.Generator):
            fresh = type(generator.bit_generator)(value + 1 + number)
            generator.bit_generator.state = fresh.state


def seed_anew() -> None:
    """Seed everything from the system's entropy, as a process starts; a forked one has its parent's state."""
    torch.default_generator.seed()
    _seed_numpy(None)
    _seed_random(None)
