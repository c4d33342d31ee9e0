"""Whether two ranks mean the same samples by the same indices: from what the samples held."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lockstep.rules.evidence.data import Reading, Row, rows_of

_RICH = 3  # samples that agree in values of their own


class Relation(StrEnum):
    """SAME: an index names the same sample on both ranks. OTHER: it does not. UNKNOWN: nothing that would tell."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass
class Contents:
    """What a rank saw under each index. values: {tensor: {index: its digests}}. rows: {what a sample held: indices}."""

    values: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    rows: dict[Row, set[int]] = field(default_factory=dict)

    @staticmethod
    def of(readings: Iterable[Reading]) -> "Contents":
        """Over several passes."""
        found = Contents()
        for reading in readings:
            for batch in reading.batches:
                for index, row in zip(batch.ids or (), rows_of(batch), strict=False):
                    found.rows.setdefault(row, set()).add(index)
                for name, digests in batch.rows.items():
                    under = found.values.setdefault(name, {})
                    for index, digest in zip(batch.ids or (), digests, strict=False):
                        under.setdefault(index, []).append(digest)
        return found

    def noisy(self, name: str) -> bool:
        """Whether a tensor differs from reading to reading of the same sample."""
        return any(len(set(digests)) > 1 for digests in self.values.get(name, {}).values())

    def steady(self, name: str) -> bool:
        """Whether a tensor was seen to be the same whenever a sample was read again."""
        again = any(len(digests) > 1 for digests in self.values.get(name, {}).values())
        return again and not self.noisy(name)


def relation(first: Contents, second: Contents) -> Relation:
    """Whether an index names the same sample on both ranks.

    One tensor that always agrees, and not by being constant, is enough: a label, where images are augmented. So is one
    that agrees here and there in values that are all different: a text, which is padded as its batch asks for. Samples
    are others where a tensor differs that was the same whenever a rank read a sample again.
    """
    agrees = differs = False
    for name in first.values.keys() & second.values.keys():
        agree, shared, distinct = _agreement(first.values[name], second.values[name])
        if shared < 2:
            continue
        agrees |= (agree == shared and distinct >= 2) or (agree >= _RICH and distinct == agree)
        differs |= agree < shared and first.steady(name) and second.steady(name)
    if agrees:
        return Relation.UNKNOWN if differs else Relation.SAME
    return Relation.OTHER if differs else Relation.UNKNOWN


def moved(first: Contents, second: Contents) -> bool:
    """Whether two ranks have the same samples under different indices."""
    both = first.rows.keys() & second.rows.keys()
    elsewhere = sum(not first.rows[row] & second.rows[row] for row in both)
    return elsewhere >= 2 and 2 * elsewhere > len(both)


def _agreement(first: Mapping[int, list[str]], second: Mapping[int, list[str]]) -> tuple[int, int, int]:
    """(indices that agree, that both have, different values among those that agree)."""
    shared = first.keys() & second.keys()
    common = [set(first[index]) & set(second[index]) for index in shared]
    return sum(map(bool, common)), len(shared), len(set().union(*common)) if common else 0


def same_samples(first: Iterable[Reading], second: Iterable[Reading]) -> bool:
    """Whether equal indices are equal samples; also where no content was told, only indices."""
    one, other = Contents.of(first), Contents.of(second)
    found = relation(one, other)
    return found is Relation.SAME or (found is Relation.UNKNOWN and not (one.values and other.values))
