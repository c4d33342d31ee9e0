"""Each kind of count reaches all ranks, at the cost that its kind allows."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.core.errors import UserError
from lockstep.runtime.counting import Counting, gradients, rescale
from lockstep.runtime.loss import Count, Term
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment

ONE = torch.ones(())


class Told(Segment):
    """Its batches are counts by name."""

    def counts(self, batch: Mapping[str, Count]) -> Mapping[str, Count]:
        return batch


def kinds() -> dict[str, Counting]:
    with World.enter(threads=1) as world:
        count = 3 * (world.rank + 1)
        one, two = {"a": Term(ONE, count)}, {"a": Term(ONE, count), "b": Term(ONE, 1)}
        return {
            "whole": Counting.of(one, None, True, 2, world),
            "whole tensor": Counting.of({"a": Term(ONE, torch.tensor(count))}, None, True, 2, world),
            "no lane": Counting.of(one, None, False, 2, world),
            "no lane, known": Counting.of(one, {"a": count}, False, 2, world),
            "fractions": Counting.of({"a": Term(ONE, 0.5)}, None, True, 1, world),
            "two": Counting.of(two, None, True, 1, world),
            "two, known": Counting.of(two, {"a": count, "b": 1}, True, 1, world),
            "none counted": Counting.of({"a": Term(ONE, 0)}, None, True, 1, world),
        }


def test_the_kind_follows_from_the_terms() -> None:
    first, second = run_ranks(kinds, 2)
    assert first == second
    assert {name: counting.kind for name, counting in first.items()} == {
        "whole": "carried",
        "whole tensor": "carried",
        "no lane": "returned",
        "no lane, known": "known",
        "fractions": "returned",
        "two": "returned",
        "two, known": "known",
        "none counted": "carried",
    }
    # 3 + 6 elements in each of 2 micro-steps.
    assert first["whole"].scale == 18.0
    assert first["none counted"].scale == 1.0


def settled() -> dict[str, Any]:
    """Two micro-steps with 1 and 2 elements on rank 0, 3 and 4 on rank 1: ten in all."""
    found: dict[str, Any] = {}
    with World.enter(threads=1) as world:
        mine = [2 * world.rank + 1, 2 * world.rank + 2]
        for kind in ("carried", "known", "returned"):
            counts = Counting(kind, 8.0).start(Told(), [{"a": n} for n in mine], world)
            divisors = [counts.totals({"a": Term(ONE, n)})["a"] for n in mine]
            grads = [torch.tensor([1.0]), torch.tensor([2.0])]
            carried = int(world.sum(torch.tensor(float(counts.carried()))))
            totals = counts.settle(carried, grads)
            found[kind] = divisors, dict(totals), [float(g) for g in grads]
    return found


def test_gradients_end_divided_by_the_count_of_all_ranks() -> None:
    for found in run_ranks(settled, 2):
        assert found["carried"] == ([8.0, 8.0], {"a": 10.0}, pytest.approx([0.8, 1.6]))
        assert found["returned"] == ([8.0, 8.0], {"a": 10.0}, pytest.approx([0.8, 1.6]))
        assert found["known"] == ([10.0, 10.0], {"a": 10.0}, [1.0, 2.0])


def refusals() -> list[str]:
    said = []
    with World.enter(threads=1) as world:
        two = {"a": Term(ONE, 1), "b": Term(ONE, 1)}
        for counting, hosts, terms in (
            (Counting("returned"), [{}, {}], two),
            (Counting("carried"), [{}], two),
            (Counting("carried"), [{}], {"a": Term(ONE, 0.5)}),
            (Counting("known"), [{"a": 1}], two),
        ):
            with pytest.raises(UserError) as refused:
                counting.start(Told(), hosts, world).totals(terms)
            said.append(str(refused.value))
    return said


def test_what_cannot_be_counted_is_explained() -> None:
    (several, more, fraction, other) = run_ranks(refusals, 1)[0]
    assert "2 terms" in several and "write counts(batch)" in several
    assert all("same names and kinds of counts in every step" in text for text in (more, fraction, other))


def test_rescaling() -> None:
    grads: list[Tensor] = [torch.tensor([4.0]), torch.tensor([6.0])]
    rescale(grads, 8.0, 4.0)
    assert [float(g) for g in grads] == [8.0, 12.0]
    rescale(grads, 8.0, 8.0)
    assert [float(g) for g in grads] == [8.0, 12.0]
    rescale(grads, 8.0, 0.0)
    assert [float(g) for g in grads] == [0.0, 0.0]
    used, unused = torch.nn.Parameter(ONE), torch.nn.Parameter(ONE)
    used.grad = torch.ones(())
    assert gradients([used, unused]) == [used.grad]
