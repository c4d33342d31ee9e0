"""Saving and loading what no rank holds whole: every rank writes its shards, through torch's distributed checkpoint.

The shards lie in safetensors files, whatever number of ranks wrote them, and any other number reads them. torch's own
file format would keep a pickle beside them, which runs code when it is read.
"""

import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from lockstep.runtime.state.tensors import host_copy
from lockstep.runtime.world import World


class Fellows:
    """The ranks that save one checkpoint together, on a process group of their own: training goes on meanwhile.

    All ranks make one together.

    Args:
        world: the ranks.
        timeout_s: seconds that one waits for the others.

    Attributes:
        leads: whether this rank writes what is not sharded.
    """

    def __init__(self, world: World, timeout_s: float = 1800.0) -> None:
        self.leads = world.is_main
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        self._mesh = init_device_mesh("cpu", (world.num_ranks,))

    def host_shard(self, value: DTensor, old: Tensor | None = None) -> DTensor:
        """A copy of this rank's shard in host memory.

        Args:
            value: split among the ranks.
            old: an earlier copy whose memory may be overwritten.
        """
        earlier = old.to_local() if isinstance(old, DTensor) else None
        own = host_copy(value.to_local(), earlier)
        return DTensor.from_local(
            own, self._mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
        )

    def agree(self, error: str) -> str:
        """What went wrong on the leading rank, on every rank; empty where nothing did."""
        told: list[Any] = [error]
        dist.broadcast_object_list(told, src=0, group=self._group)
        return str(told[0])

    def save(self, folder: Path, shards: Mapping[str, Tensor]) -> None:
        """Write the shards of all ranks into a folder.

        Args:
            folder: the same for all, on a disk that all see.
            shards: by name, those of this rank.

        Raises:
            OSError: on every rank, where one could not write.
        """
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        try:
            save(dict(shards), storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            told = "; ".join(f"rank {rank}: {failure[0]}" for rank, failure in error.failures.items())
            raise OSError(f"the shards could not be written ({told})") from None


def load_shards(folder: Path, wanted: dict[str, Tensor]) -> None:
    """Fill tensors from the shards of a checkpoint, each rank by itself.

    Args:
        folder: what `Fellows.save` has filled, by any number of ranks.
        wanted: by name; a DTensor takes its share, an ordinary tensor the whole.

    Raises:
        KeyError: where a tensor is not in the folder.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        try:
            load(dict(wanted), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
        except CheckpointException as error:
            told = "; ".join(str(failure[0]) for failure in error.failures.values())
            raise KeyError(told) from None


def fitted(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as another one is kept: this rank's share of it where that is a DTensor, else itself.

    Args:
        value: the same on every rank.
        like: of the same shape.
    """
    if not isinstance(like, DTensor):
        return value
    here = value.to(like.to_local().device)
    return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)
