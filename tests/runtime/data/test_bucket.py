import numpy as np
import pytest
import torch

from lockstep.runtime.data.bucket import POOL, bucketed
from lockstep.runtime.data.order import order


def sizes(length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 300, length)


def test_it_is_a_permutation_and_a_pure_function() -> None:
    for length in (1, 5, 64, 1000, 4099):
        made = bucketed(order(length, 3, 2), sizes(length), 8, 3, 2)
        assert sorted(made.tolist()) == list(range(length))
        torch.manual_seed(5)
        assert torch.equal(made, bucketed(order(length, 3, 2), sizes(length), 8, 3, 2))


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    made = [tuple(bucketed(order(300, s, e), sizes(300), 8, s, e).tolist()) for s in range(2) for e in range(3)]
    assert len(set(made)) == 6


@pytest.mark.parametrize("bucket", [4, 32])
def test_samples_of_a_bucket_are_of_like_size_and_buckets_are_not_sorted(bucket: int) -> None:
    length = 8 * POOL * bucket
    size = sizes(length)
    rows = size[bucketed(order(length, 0, 0), size, bucket, 0, 0).numpy()].reshape(-1, bucket)
    spread = rows.max(1) - rows.min(1)
    assert spread.mean() < 300 / POOL * 1.5
    means = rows.mean(1)
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.25


def test_a_sample_stays_in_its_pool_of_the_random_order() -> None:
    permutation, pool = order(1000, 0, 0), 4 * POOL
    made = bucketed(permutation, sizes(1000), 4, 0, 0)
    for begin in range(0, 1000, pool):
        assert set(made[begin : begin + pool].tolist()) == set(permutation[begin : begin + pool].tolist())


def test_equal_sizes_keep_the_random_order_within_a_bucket() -> None:
    permutation = order(100, 0, 0)
    made = bucketed(permutation, np.ones(100, dtype=np.int64), 10, 0, 0)
    buckets = {tuple(permutation[begin : begin + 10].tolist()) for begin in range(0, 100, 10)}
    assert {tuple(made[begin : begin + 10].tolist()) for begin in range(0, 100, 10)} == buckets
