"""Reading samples by (epoch, index): seeded one by one, made into a batch, its labels checked, errors named."""

from collections.abc import Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

from torch.utils.data import Dataset, get_worker_info

from lockstep.core.errors import explain
from lockstep.runtime.data.broken import Broken, shown, unbatchable, unreadable
from lockstep.runtime.data.named import where_of
from lockstep.runtime.data.sampler import Key
from lockstep.runtime.data.stateful import Stated, StreamState
from lockstep.runtime.recipe import Batching, Labels
from lockstep.runtime.streams import preserved, seed_sample


@dataclass(frozen=True)
class Fetched:
    """Samples with the keys that they were read by, the data set that may name their files, a stream's state after."""

    keys: Sequence[Key]
    samples: list[Any]
    dataset: Any = None
    after: StreamState | None = None


class KeyedDataset(Dataset[Any]):
    """A map-style data set read by (epoch, index) pairs, each sample under its own random stream.

    Augmentation that draws from torch's, numpy's or `random`'s global state becomes a function of
    (seed, epoch, index) without a line of code in the data set.

    Args:
        dataset: the user's data set.
        seed: seed of the run.
        stream: name of the stream, so that training and validation samples draw differently.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, stream: str) -> None:
        self.dataset, self.seed, self.stream = dataset, seed, stream

    def __len__(self) -> int:
        """Samples of the user's data set."""
        return len(cast(Sized, self.dataset))

    def __getitems__(self, keys: Sequence[Key]) -> Fetched | Broken:
        """Read one batch; a sample that raises is named by its index and the user's line."""
        samples = []
        # A worker process draws for samples only; in the rank's own process the training's state must come back.
        with preserved() if get_worker_info() is None else nullcontext():
            for epoch, index in keys:
                seed_sample(self.seed, self.stream, epoch, index)
                try:
                    samples.append(self.dataset[index])
                except Exception as error:
                    return unreadable(error, self.stream, epoch, index, where_of(self.dataset, index))
        return Fetched(keys, samples, self.dataset)


class Collate:
    """Make a batch of fetched samples and check its labels on the host.

    Args:
        recipe: gives `collate` and `labels`.
        stream: `train` or `val`, for messages.
    """

    def __init__(self, recipe: Batching, stream: str) -> None:
        self.recipe, self.stream = recipe, stream

    def __call__(self, fetched: Fetched | Broken) -> Any:
        """The user's batch, or the error to raise."""
        if isinstance(fetched, Broken):
            return fetched
        try:
            batch = self.recipe.collate(fetched.samples)
            labels = self.recipe.labels(batch)
            wrong = wrong_label(labels) if labels is not None else None
        except Exception as error:
            return unbatchable(error, self.stream, fetched.keys)
        if wrong is None:
            return batch if fetched.after is None else Stated(batch, fetched.after)
        assert labels is not None
        return self._outside(labels, *wrong, fetched)

    def _outside(self, labels: Labels, row: int, value: int, fetched: Fetched) -> Broken:
        keys, files = fetched.keys, ""
        allowed = f"0 .. {labels.num_classes - 1}"
        if labels.ignore_index is not None:
            allowed += f", or {labels.ignore_index} (ignored)"
        # A collate that joins boxes or points of all samples has rows that are no samples.
        of = f"one of the samples {shown(keys)}"
        if len(labels.values) == len(keys):
            of, files = f"sample {keys[row][1]}", where_of(fetched.dataset, keys[row][1])
        where = f"{self.stream} {of}, epoch {keys[0][0]}{', ' if files else ''}{files}"
        return Broken(
            explain(f"label {value} is outside the classes", allowed, where, "mend the label, or num_classes"), True
        )


def wrong_label(labels: Labels) -> tuple[int, int] | None:
    """The first label outside the classes as (row of the batch, value), None where all are right."""
    # A small type would wrap: 256 classes are 0 classes in uint8.
    values = labels.values if labels.values.is_floating_point() else labels.values.long()
    outside = (values < 0) | (values >= labels.num_classes)
    if labels.ignore_index is not None:
        outside &= values != labels.ignore_index
    if not bool(outside.any()):
        return None
    first = outside.nonzero()[0].tolist()
    return first[0], int(values[tuple(first)])
