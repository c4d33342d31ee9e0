"""A worker's half: read samples under their random stream, check them, and say what was found in few bytes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isgenerator
from typing import Any

from lockstep.core.errors import UserError, explain
from lockstep.runtime.data.named import where_of
from lockstep.runtime.recipe import Batching, Labels
from lockstep.runtime.scanning.build import Build, Leaf, build_of, leaves_of, num_bytes
from lockstep.runtime.scanning.checks import census, label_text, value_faults
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.read import Gathering, Read
from lockstep.runtime.scanning.telling import name_digest, told
from lockstep.runtime.scanning.together import batch_of_one
from lockstep.runtime.streams import seed_sample

_MOST_TOGETHER, _MOST_BYTES = 128, 4 * 2**20
"""Samples that are held at once to be batched: so many, or so many bytes, which a cache still holds."""
_LARGE = 16 * 2**10
"""Bytes of a sample from which a copy into a batch costs more than a batch of its own."""
_MOST_KEPT = 64 * 2**20
"""Bytes of a stream's samples that are kept, one of each build, to be compared at the end."""
_MOST_ERRORS = 20
"""Errors of a stream in a row after which it is left alone."""

_DEFAULT_COLLATE = "default_collate: "

Beat = Callable[[int | None], None]
"""Called before each piece of work with the index of the sample, or None where it is of several."""


@dataclass(frozen=True)
class Source:
    """One split.

    Attributes:
        split: `train` or `val`.
        data: the data set.
        length: its samples; None for a stream, which is read in its order.
    """

    split: str
    data: Any
    length: int | None


class NotLabelsError(UserError):
    """The recipe's `labels` gives what are no labels: a fault of the recipe, not of a sample."""


class Reader:
    """Reads one split.

    Args:
        source: the split.
        recipe: gives `collate` and `labels`.
        seed: of the run; a sample is read as in epoch 0 of the training.
        beat: tells what is being worked on.
    """

    def __init__(self, source: Source, recipe: Batching, seed: int, beat: Beat) -> None:
        self.source, self.recipe, self.seed, self.beat = source, recipe, seed, beat
        self._numbers: dict[Build, int] = {}
        self._stream: Iterator[Any] | None = None
        self._position = 0
        self._errors = 0
        self._kept: dict[int, Any] = {}
        self._kept_bytes = 0
        self._stacks = type(recipe).collate is Batching.collate
        self._named = bool(source.length != 0 and where_of(source.data, 0))

    def read(self, indices: Sequence[int], one_by_one: bool) -> Read:
        """Read and check a block of samples.

        Args:
            indices: of a stream: the positions that come next.
            one_by_one: make a batch of each sample alone, so that one that ends the process is known.

        Raises:
            NotLabelsError: where the recipe's `labels` gives something else.
        """
        start = time.perf_counter()
        block, held, held_bytes = Gathering(), [], 0
        done, ended = 0, False
        for index in indices:
            self.beat(index)
            try:
                sample = self._next(index)
            except StopIteration:
                ended = True
                break
            except BaseException as error:  # whatever it is, it is the data set's: Ctrl-C does not come here
                done += 1
                self._errors += 1
                ended = self._ended()
                text = told(error) + ("; the stream ends there" if ended else "")
                block.findings.append(self.finding("unreadable", index, text))
                if ended:
                    break
                continue
            done += 1
            self._errors = 0
            try:
                held_bytes += self._look(block, index, sample)
            except BaseException as error:  # of foreign objects, too
                block.findings.append(self.finding("structure", index, _not_looked_at(error)))
                continue
            held.append((index, sample))
            if one_by_one or len(held) == _MOST_TOGETHER or held_bytes >= _MOST_BYTES:
                self._batch(block, held, one_by_one)
                held, held_bytes = [], 0
        self._batch(block, held, one_by_one)
        return block.read(self.source.split, done, ended, time.perf_counter() - start)

    def sample(self, index: int) -> Any:
        """One sample, read again or as it was kept; of a stream too."""
        if index in self._kept:
            return self._kept[index]
        return self._next(index)

    def finding(self, kind: str, index: int, text: str) -> Finding:
        """A finding of this split."""
        return Finding(kind, self.source.split, index, where_of(self.source.data, index), text)

    def _next(self, index: int) -> Any:
        if self.source.length is not None:
            seed_sample(self.seed, self.source.split, 0, index)
            return self._at(index)
        if self._stream is None or self._position > index:
            self._stream, self._position = iter(self.source.data), 0
        while self._position < index:  # in the place of a worker that was lost
            self.beat(self._position)
            self._take()
        self.beat(index)
        return self._take()

    def _take(self) -> Any:
        """The next item of a stream; item p is read under the sample stream of position p, as in training."""
        assert self._stream is not None
        seed_sample(self.seed, self.source.split, 0, self._position)
        self._position += 1
        return next(self._stream)

    def _at(self, index: int) -> Any:
        try:
            return self.source.data[index]
        except StopIteration as error:
            raise RuntimeError("StopIteration") from error  # it must not look like the end of a stream

    def _ended(self) -> bool:
        """Whether a stream that has raised gives nothing more: a generator never does."""
        return self.source.length is None and (isgenerator(self._stream) or self._errors >= _MOST_ERRORS)

    def _look(self, block: Gathering, index: int, sample: Any) -> int:
        """Check a sample by itself; how many bytes it has. Where it raises, nothing is noted in the block."""
        leaves: list[Leaf] = list(leaves_of(sample))
        build, size = build_of(leaves), num_bytes(leaves)
        faults = list(value_faults(leaves))
        number = self._numbers.get(build)
        if number is None:
            number = self._numbers[build] = len(self._numbers)
            block.new.append(build)
            if self.source.length is None and self._kept_bytes + size <= _MOST_KEPT:
                self._kept[index] = sample  # a stream cannot go back to it
                self._kept_bytes += size
        block.indices.append(index)
        block.builds.append(number)
        block.sizes.append(size)
        if self._named:
            block.names.append(name_digest(where_of(self.source.data, index)))
        block.findings += [self.finding(kind, index, text) for kind, text in faults]
        return size

    def _batch(self, block: Gathering, held: Sequence[tuple[int, Any]], one_by_one: bool) -> None:
        """Make batches and count their labels; of each sample alone where that does not work or a label is wrong.

        Samples of one build come together: what a collate pads would be counted with the labels, and differ with the
        samples that happen to be held.
        """
        alike: dict[int, list[tuple[int, Any]]] = {}
        large = sum(block.sizes[len(block.sizes) - len(held) :]) >= _LARGE * len(held)
        one_by_one = one_by_one or (self._stacks and large)
        for number, pair in zip(block.builds[len(block.builds) - len(held) :], held, strict=True):
            alike.setdefault(number, []).append(pair)
        for pairs in alike.values():
            if len(pairs) > 1 and not one_by_one:
                self.beat(None)
                try:
                    if self._count(block, [sample for _, sample in pairs], None):
                        continue
                except NotLabelsError:
                    raise
                except BaseException:  # none can be made of them, or of one: of which is seen below
                    pass
            for index, sample in pairs:
                self.beat(index)
                try:
                    self._count(block, [sample], index)
                except NotLabelsError:
                    raise
                except BaseException as error:
                    block.findings.append(self.finding("collate", index, self._not_a_batch(error)))

    def _count(self, block: Gathering, samples: list[Any], index: int | None) -> bool:
        """Whether the labels of a batch are right; they are counted if so, or if it is of the one sample `index`."""
        alone = self._stacks and len(samples) == 1
        labels: Any = self.recipe.labels(batch_of_one(samples[0]) if alone else self.recipe.collate(samples))
        if labels is None:
            return True
        if not isinstance(labels, Labels):
            seen = f"labels() gave {type(labels).__name__} for a batch of {self.source.split}"
            must = "labels(batch) gives Labels(values, num_classes), or None where there is nothing to check"
            raise NotLabelsError(explain(seen, must, type(self.recipe).__name__))
        found = census(labels)
        if found.wrong:
            if index is None:
                return False
            block.findings.append(self.finding("label", index, label_text(found, labels)))
        block.counts = found.counts if block.counts is None else block.counts + found.counts
        block.ignored += found.ignored
        return True

    def _not_a_batch(self, error: BaseException) -> str:
        text = told(error)
        if self._stacks and isinstance(error, TypeError) and _DEFAULT_COLLATE in text:
            return f"{text.replace(_DEFAULT_COLLATE, '')}; or write collate(samples) in the recipe"
        return text


def _not_looked_at(error: BaseException) -> str:
    """What is wrong with a sample that cannot be taken apart."""
    if isinstance(error, RecursionError):
        return "is nested too deep to be looked at"
    return f"cannot be looked at: {told(error)}"
