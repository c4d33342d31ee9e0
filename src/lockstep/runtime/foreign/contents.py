"""What a checkpoint holds, whoever wrote it: tensors in groups (model, optimizer, ...), facts, and what is foreign."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.runtime.foreign.danger import is_dangerous, is_unknown
from lockstep.runtime.foreign.dtypes import BYTES
from lockstep.runtime.foreign.tensor_ref import TensorRef

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """A tensor by name, still in its file.

    Attributes:
        shape: its sizes. dtype: as torch names it, without `torch.`.
        load: reads it into memory.
        identity: equal for names of one and the same tensor (tied weights).
    """

    shape: tuple[int, ...]
    dtype: str
    load: "Callable[[], Tensor]" = field(repr=False, compare=False)
    identity: Any = field(default=None, repr=False, compare=False)

    @staticmethod
    def of(ref: TensorRef) -> "Entry":
        """The entry of a tensor in a file."""
        return Entry(ref.shape, ref.dtype, ref.load, ref.identity)

    @property
    def numel(self) -> int:
        """How many numbers."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.numel * BYTES[self.dtype]


@dataclass
class Contents:
    """A checkpoint, opened.

    Attributes:
        path: what was opened.
        kind: what it is, in words.
        groups: tensors by name, by group; the name of a group is the key that it had ("" for a bare state dict).
        weights: the group that holds the model's weights; None where there is none, or several.
        facts: step, epoch, optimizer and the like, in words or numbers.
        origins: names that a pickle in it asks for; none was looked up.
        notes: what a reader should know besides.
        damage: what is known to be wrong with its bytes, "" where nothing is.
    """

    path: Path
    kind: str
    groups: dict[str, dict[str, Entry]]
    weights: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    origins: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damage: str = ""

    @property
    def dangerous(self) -> list[str]:
        """Names among `origins` that only a trap would ask for."""
        return [origin for origin in self.origins if is_dangerous(origin)]

    @property
    def unknown(self) -> list[str]:
        """Functions among `origins` of which nobody here knows what they do."""
        return [origin for origin in self.origins if is_unknown(origin)]

    def merged(self, groups: Mapping[str, dict[str, Entry]], other: "Contents | None" = None) -> None:
        """Add groups, and the facts, origins and notes of where they come from."""
        self.groups |= groups
        if other is not None:
            self.facts = {**other.facts, **self.facts}
            self.damage = self.damage or (f"{other.path.name}: {other.damage}" if other.damage else "")
            self.origins = list(dict.fromkeys([*self.origins, *other.origins]))
            self.notes += [note for note in other.notes if note not in self.notes]
