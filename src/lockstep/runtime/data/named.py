"""Data sets that can name their files: which file is sample 17, and which files make no sample."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.utils.data import ConcatDataset, Subset


@runtime_checkable
class Named(Protocol):
    """A data set that knows the files of its samples. Optional: without it a sample is named by its index alone."""

    def where(self, index: int) -> str:
        """The file or files of a sample, for people: `JPEGImages/a.jpg, SegmentationClass/a.png`."""
        ...


@runtime_checkable
class HasStrays(Protocol):
    """A data set that knows which of the files around it make no sample."""

    def strays(self) -> Iterable[tuple[str, str]]:
        """Pairs (path, what is wrong with it), such as a mask without an image."""
        ...


def where_of(dataset: Any, index: int) -> str:
    """The files of a sample, seen through torch's `Subset` and `ConcatDataset`.

    Args:
        dataset: any data set.
        index: of the sample, counted from 0.

    Returns: what the data set says, empty where it does not name its files. An error of its own is said, not raised:
        a name is asked for while something else is being explained.
    """
    if isinstance(dataset, Tensor):  # a method of its own has that name
        return ""
    try:
        return _where(dataset, index)
    except Exception as error:
        return f"(where({index}) raised {type(error).__name__}: {error_text(error)})"


def error_text(error: BaseException) -> str:
    """What an error says; an error whose own text raises does not hide what it is told of."""
    try:
        return str(error)
    except Exception as inner:
        return f"(its text raised {type(inner).__name__})"


def _where(dataset: Any, index: int) -> str:
    if isinstance(dataset, Named):
        found = dataset.where(index)
        return found if isinstance(found, str) else ""  # another method of that name
    if isinstance(dataset, Subset):
        return _where(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        part = bisect_right(dataset.cumulative_sizes, index)
        before = dataset.cumulative_sizes[part - 1] if part else 0
        return _where(dataset.datasets[part], index - before)
    return ""


def strays_of(dataset: Any) -> list[tuple[str, str]]:
    """The files that make no sample, seen through `Subset` and `ConcatDataset`: sorted pairs (path, what is wrong).

    Raises:
        TypeError: where a data set's `strays()` gives something else.
    """
    return sorted(set(_strays(dataset)))


def _strays(dataset: Any) -> Iterable[tuple[str, str]]:
    if isinstance(dataset, HasStrays):
        found: Any = dataset.strays()
        if not isinstance(found, Iterable):
            raise TypeError(f"strays() gave {type(found).__name__}, not pairs (path, what is wrong)")
        for pair in found:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"strays() gave a {type(pair).__name__} among its pairs (path, what is wrong)")
            yield str(pair[0]), str(pair[1])
    elif isinstance(dataset, Subset):
        yield from _strays(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _strays(part)
