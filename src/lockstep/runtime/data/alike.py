"""Do all machines read the same data? A few samples of each set are compared when a run starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset

from lockstep.core.errors import UserError, explain
from lockstep.runtime.data.broken import Broken
from lockstep.runtime.data.samples import KeyedDataset
from lockstep.runtime.data.sizing import sized
from lockstep.runtime.world import World

_PARTS = 16
_TOLERANCE = 0.01


def check_alike(sets: Mapping[str, Dataset[Any] | None], seed: int, world: World) -> None:
    """Compare the first, the middle and the last sample of each set across machines; one rank of each reads them.

    Ranks of one machine read the same disk, so that there is nothing to compare on one. A sample that a second read
    gives otherwise (randomness of its own), that cannot be read, or of an unknown kind is left out.

    Args:
        sets: map-style sets of equal length on all ranks, by name (`train`, `val`); streams are left out.
        seed: of the run; samples are read under their own random stream, as in training.

    Raises:
        UserError: a sample differs between machines, on every rank.
    """
    if world.place.num_nodes == 1:
        return
    found = {name: _prints(data, seed, name) for name, data in sets.items()} if world.place.rank_of_node == 0 else None
    by_rank = world.gather(found)
    first = by_rank[0] or {}
    for rank, other in enumerate(by_rank):
        for name, prints in (other or {}).items():
            for index, one in prints.items():
                there = first[name].get(index)
                if one is not None and there is not None and not there.alike(one):
                    raise _differs(name, index, rank)


def _differs(name: str, index: int, rank: int) -> UserError:
    kind = {"train": "training", "val": "validation"}.get(name, name)
    return UserError(
        explain(
            f"sample {index} of the {kind} set is not the same on the machine of rank {rank} as on that of rank 0",
            "every machine reads the same data in the same order",
            next_step="copy the data again, or put it on a disk that all share; sort the files, and split them with a"
            " fixed seed",
        )
    )


def _prints(data: Dataset[Any] | None, seed: int, name: str) -> dict[int, "Print | None"]:
    if data is None or isinstance(data, IterableDataset):
        return {}
    length = sized(data, name)
    keyed = KeyedDataset(data, seed, name)
    return {index: _read(keyed, index) for index in sorted({0, length // 2, length - 1})}


def _read(keyed: KeyedDataset, index: int) -> "Print | None":
    """The print of a sample, None if it has none that another machine must have too."""
    reads = [keyed.__getitems__([(0, index)]) for _ in range(2)]
    prints = [None if isinstance(read, Broken) else Print.of(read.samples[0]) for read in reads]
    return prints[0] if prints[0] == prints[1] else None


@dataclass(frozen=True)
class Print:
    """What is kept of a sample: a digest of all that is exact, and coarse means of all that is measured.

    Two machines may decode a picture, or interpolate, with a last digit of difference: other CPU, other instructions.

    means: of each array, of _PARTS parts one after the other. scales: of each array, the mean of its absolute values.
    """

    exact: str
    means: tuple[tuple[float, ...], ...]
    scales: tuple[float, ...]

    @staticmethod
    def of(value: Any) -> "Print | None":
        """The print of numbers, text, arrays, pictures and what holds them; None if there is anything else in it."""
        words: list[bytes] = []
        arrays: list[NDArray[np.float64]] = []
        if not _collect(value, words, arrays):
            return None
        exact = blake2b(b"\0".join(words), digest_size=16).hexdigest()
        parts = [[part for part in np.array_split(array, _PARTS) if part.size] for array in arrays]
        means = tuple(tuple(float(part.mean()) for part in each) for each in parts)
        return Print(exact, means, tuple(float(np.abs(array).mean()) if array.size else 0.0 for array in arrays))

    def alike(self, other: "Print") -> bool:
        """Whether both can be of one sample."""
        if self.exact != other.exact:
            return False
        return all(
            np.allclose(mine, theirs, rtol=0, atol=_TOLERANCE * scale, equal_nan=True)
            for mine, theirs, scale in zip(self.means, other.means, self.scales, strict=True)
            if np.isfinite(scale)
        )


def _collect(value: Any, words: list[bytes], arrays: list[NDArray[np.float64]]) -> bool:
    """Take a sample apart; False for a part of an unknown kind."""
    words.append(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.is_complex():
            return False
        words.append(str(value.dtype).encode())
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    if isinstance(value, np.ndarray | np.generic):
        return _collect_array(np.asarray(value), words, arrays)
    if isinstance(value, Mapping):
        return all(_collect(part, words, arrays) for pair in value.items() for part in pair)
    if isinstance(value, str | PurePath):
        words.append(str(value).rpartition("/")[2].encode())  # folders may differ between machines
        return True
    if isinstance(value, bytes | int | bool | None):
        words.append(repr(value).encode())
        return True
    if isinstance(value, float):
        return _collect_array(np.asarray(value), words, arrays)
    if isinstance(value, Sequence):
        words.append(str(len(value)).encode())
        return all(_collect(part, words, arrays) for part in value)
    if hasattr(value, "getbands") and hasattr(value, "__array_interface__"):  # a picture of Pillow's
        return _collect_array(np.asarray(value), words, arrays)
    return False


def _collect_array(array: NDArray[Any], words: list[bytes], arrays: list[NDArray[np.float64]]) -> bool:
    words.append(f"{array.dtype}{array.shape}".encode())
    if array.dtype.kind == "f" or array.dtype in (np.uint8, np.int8):
        arrays.append(array.astype(np.float64).ravel())
    elif array.dtype.kind in "biuSU":
        words.append(array.tobytes())
    else:
        return False
    return True
