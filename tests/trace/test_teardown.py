"""The group that a script takes down is freed by Python, never by the model that outlives it."""

import torch.distributed as dist

from lockstep.trace.teardown import keep_group
from tests.last_to_hold import leave_before_the_model
from tests.ranks import run_ranks


def _kept() -> list[int]:
    original = dist.destroy_process_group

    def destroy() -> None:
        keep_group()
        original()

    dist.destroy_process_group = destroy
    return [leave_before_the_model(part) for part in (False, True) for _ in range(20)]


def test_torch_frees_a_group_with_the_model_that_outlives_it() -> None:
    # Should this change in torch, the deadlock is gone with it, and so may be what this file tests.
    assert run_ranks(leave_before_the_model, 1) == [0]


def test_a_kept_group_outlives_the_model_but_not_for_ever() -> None:
    (found,) = run_ranks(_kept, 1)
    assert found[0] > 0
    assert found[19] == 8 * found[0]
    assert found[-1] == 8 * 2 * found[0], "every group that is taken down is kept, not only the default one"
