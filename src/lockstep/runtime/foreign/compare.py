"""Two checkpoints, tensor by tensor: which differ and by how much, and which are under another name."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lockstep.runtime.foreign.contents import Entry
from lockstep.runtime.foreign.names import common_prefix, plain
from lockstep.runtime.foreign.values import Distance, distance, same_bits

Verdict = Literal["equal", "within", "differs", "dtype", "shape", "only left", "only right"]


@dataclass(frozen=True)
class Compared:
    """One tensor of two checkpoints.

    Attributes:
        left, right: its name on each side; None where it is not there.
        verdict: `equal`: bit for bit. `within` the tolerance. `differs` in value. `dtype`: the same values in another
            type. `shape`. `only left`, `only right`.
        detail: shapes or types where they differ.
        distance: by how much the values differ.
    """

    left: str | None
    right: str | None
    verdict: Verdict
    detail: str = ""
    distance: Distance | None = None

    @property
    def name(self) -> str:
        """The name on the left, or the only one."""
        name = self.left if self.left is not None else self.right
        assert name is not None
        return name


def pair_names(left: Collection[str], right: Collection[str]) -> dict[str, str]:
    """Which name on the right belongs to which on the left.

    Names are tried as they are, then without what wrappers put into them, then without a first part that all names of a
    side share.
    """
    shared = [common_prefix([plain(name) for name in names]) for names in (left, right)]
    pairs: dict[str, str] = {}
    for cuts in (None, ("", ""), (shared[0], ""), ("", shared[1]), (shared[0], shared[1])):
        rest_left = _forms((name for name in left if name not in pairs), cuts and cuts[0])
        taken = set(pairs.values())
        rest_right = _forms((name for name in right if name not in taken), cuts and cuts[1])
        pairs |= {rest_left[form]: rest_right[form] for form in rest_left if form in rest_right}
    return pairs


def _forms(names: Iterable[str], cut: str | None) -> dict[str, str]:
    """Form -> name, for the forms that only one name has. `cut` None: names as they are."""
    forms: dict[str, list[str]] = {}
    for name in names:
        forms.setdefault(name if cut is None else plain(name).removeprefix(cut), []).append(name)
    return {form: owners[0] for form, owners in forms.items() if len(owners) == 1}


def compare(left: Mapping[str, Entry], right: Mapping[str, Entry], tolerance: float = 0.0) -> Iterator[Compared]:
    """Compare two sets of tensors, one pair in memory at a time.

    Args:
        left, right: tensors by name.
        tolerance: largest absolute difference that counts as `within`.
    """
    pairs = pair_names(left, right)
    taken = set(pairs.values())
    for name, entry in left.items():
        if name in pairs:
            yield _pair(name, pairs[name], entry, right[pairs[name]], tolerance)
        else:
            yield Compared(name, None, "only left", f"{list(entry.shape)} {entry.dtype}")
    for name, entry in right.items():
        if name not in taken:
            yield Compared(None, name, "only right", f"{list(entry.shape)} {entry.dtype}")


def _pair(left: str, right: str, one: Entry, other: Entry, tolerance: float) -> Compared:
    if one.shape != other.shape:
        return Compared(left, right, "shape", f"{list(one.shape)} -> {list(other.shape)}")
    tensors = one.load(), other.load()
    types = f"{one.dtype} -> {other.dtype}" if one.dtype != other.dtype else ""
    if not types and same_bits(*tensors):
        return Compared(left, right, "equal")
    found = distance(*tensors)
    if found is None:
        return Compared(left, right, "dtype" if types else "within", types or "other bits, same values (-0 and 0, NaN)")
    return Compared(left, right, "within" if found.largest <= tolerance else "differs", types, found)
