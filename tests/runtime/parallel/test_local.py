"""What a rank holds of a tensor."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from lockstep.runtime.parallel.local import local
from lockstep.runtime.world import World
from tests.ranks import run_ranks


def held() -> tuple[list[int], bool]:
    with World.enter(threads=1) as world:
        mesh = init_device_mesh("cpu", (world.num_ranks,))
        split = distribute_tensor(torch.arange(5), mesh, [Shard(0)])
        own = local(split)
        own.add_(10)
        return own.tolist(), bool((split.to_local() == own).all())


def test_a_shard_is_its_part_and_shares_its_memory() -> None:
    assert run_ranks(held, 2) == [([10, 11, 12], True), ([13, 14], True)]


def test_an_ordinary_tensor_is_itself_without_history() -> None:
    value = torch.ones(2, requires_grad=True) * 2
    assert local(value).data_ptr() == value.data_ptr()
    assert not local(value).requires_grad
