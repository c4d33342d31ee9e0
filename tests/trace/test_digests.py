"""Digests tell tensors apart, and know all kinds of them."""

import pytest
import torch

from lockstep.trace.digests import full_digest, sampled_digests, to_numpy

KINDS = {
    "float": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.arange(6, dtype=torch.bfloat16),
    "float8": torch.arange(6.0).to(torch.float8_e5m2),
    "complex": torch.arange(6.0) * 1j,
    "conjugate": (torch.arange(6.0) * 1j).conj(),
    "no dimension": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
    "bool": torch.tensor([True, False]),
    "sparse": torch.eye(3).to_sparse(),
    "transposed": torch.arange(60.0).reshape(6, 10).t(),
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "expanded": torch.ones(1, 20).expand(5, 20),
    "strided": torch.arange(100.0)[::3],
    "gradient": torch.ones(20, requires_grad=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_digests(kind: str) -> None:
    tensor = KINDS[kind]
    assert full_digest(tensor) == full_digest(tensor.detach().clone()) != ""
    assert sampled_digests([tensor]) == sampled_digests([tensor.detach().clone()]) != [""]
    assert to_numpy(tensor).shape == (tuple(tensor.shape) or (1,))


def test_values_are_those_of_the_tensor() -> None:
    assert to_numpy(KINDS["float8"]).tolist() == [0, 1, 2, 3, 4, 5]
    assert to_numpy(KINDS["conjugate"]).tolist() == [number * -1j for number in range(6)]
    assert to_numpy(KINDS["sparse"]).tolist() == torch.eye(3).tolist()


def test_several_at_once_are_as_each_alone() -> None:
    tensors = list(KINDS.values())
    assert sampled_digests(tensors) == [sampled_digests([one])[0] for one in tensors]
    assert sampled_digests([]) == []


def test_no_values_no_digest() -> None:
    meta = torch.empty(3, device="meta")
    assert full_digest(meta) == ""
    known = torch.ones(3)
    assert sampled_digests([known, meta, known]) == [*sampled_digests([known]), "", *sampled_digests([known])]


def test_any_change_is_seen_in_full() -> None:
    one = torch.zeros(1000)
    other = one.clone()
    other[501] = 1e-30
    assert full_digest(one) != full_digest(other)
    assert full_digest(one) != full_digest(one.reshape(10, 100))
    assert full_digest(one) != full_digest(one.to(torch.int32))


def test_a_change_of_all_elements_is_seen_in_a_sample() -> None:
    for shape in ((8,), (9,), (100,), (7, 13), (2, 3, 4, 5)):
        one = torch.randn(shape)
        assert sampled_digests([one]) != sampled_digests([one + 1e-3])


def test_sparse_gradients_of_other_rows_differ() -> None:
    values = torch.ones(1, 4)
    one, other = (
        torch.sparse_coo_tensor(torch.tensor([[row]]), values, (9, 4), check_invariants=True) for row in (2, 5)
    )
    assert sampled_digests([one]) != sampled_digests([other])


def test_a_parts_digest_is_its_own() -> None:
    """A view is looked at within its own elements only."""
    base = torch.zeros(40)
    before = sampled_digests([base[:20], base[::2]])
    base[20:] = 1
    after = sampled_digests([base[:20], base[::2]])
    assert before[0] == after[0] and before[1] != after[1]
