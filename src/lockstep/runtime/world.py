"""Who am I among N: the one place that reads torchrun's environment and joins the process group."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from lockstep.core.errors import RunError, UserError, explain

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A rank's place among all ranks.

    Attributes:
        rank: 0 .. num_ranks - 1 over all nodes.
        rank_of_node: 0 .. ranks_per_node - 1 on this node; also the index of its GPU.
        node: index of this machine.
    """

    rank: int = 0
    num_ranks: int = 1
    rank_of_node: int = 0
    ranks_per_node: int = 1
    node: int = 0
    num_nodes: int = 1

    @staticmethod
    def from_environment() -> "Place":
        """Read the variables that torchrun sets; without them, one process is N = 1.

        Raises:
            UserError: where only some are set, one is no number, or they contradict each other.
        """
        if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
            return Place()
        rank, num_ranks = _number("RANK"), _number("WORLD_SIZE", least=1)
        ranks_per_node = _number("LOCAL_WORLD_SIZE", num_ranks, least=1)
        node = _number("GROUP_RANK", rank // ranks_per_node)
        num_nodes = _number("GROUP_WORLD_SIZE", -(-num_ranks // ranks_per_node))
        rank_of_node = _number("LOCAL_RANK", rank % ranks_per_node)
        if not (rank < num_ranks and rank_of_node < ranks_per_node):
            seen = (
                f"RANK={rank} of WORLD_SIZE={num_ranks}, LOCAL_RANK={rank_of_node} of LOCAL_WORLD_SIZE={ranks_per_node}"
            )
            raise UserError(explain(seen, "each rank is below its size", "environment", _START))
        return Place(rank, num_ranks, rank_of_node, ranks_per_node, node, num_nodes)


_START = "start through `lockstep train` or torchrun, which set all of them; or unset RANK and WORLD_SIZE"


def _number(name: str, default: int | None = None, least: int = 0) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal() or int(text) < least:
        raise UserError(explain(f"{name} is {text!r}", f"a whole number, at least {least}", "environment", _START))
    return int(text)


def launched() -> bool:
    """Whether a launcher (ours or torchrun) has started this process as a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarts() -> tuple[int, int]:
    """How often the launcher has started these ranks again, and how often it may."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0), _number("TORCHELASTIC_MAX_RESTARTS", 0)


def num_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_ranks(device: str) -> int:
    """Ranks on this machine where the user names no number: all visible GPUs; on a CPU at most 2."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.device_count()
    return min(2, num_cores())


@dataclass(frozen=True)
class World:
    """The ranks of one run, joined. Enter it with `World.enter`; one process is a world of one rank."""

    place: Place
    device: torch.device

    @staticmethod
    @contextmanager
    def enter(
        device: Literal["auto", "cpu", "cuda"] = "auto",
        threads: int | Literal["auto"] = "auto",
        timeout_s: float = 600.0,
    ) -> Iterator["World"]:
        """Bind the device, join the process group, and leave it in every way out.

        Args:
            device: `auto` takes the GPU of this rank where torch sees one.
            threads: CPU threads of this rank; `auto` is the node's cores / its ranks.
            timeout_s: seconds after which a collective that the others did not join fails.
        """
        place = Place.from_environment()
        world = World(place, _bind(place, device))
        threads_before = torch.get_num_threads()
        torch.set_num_threads(max(1, num_cores() // place.ranks_per_node) if threads == "auto" else threads)
        try:
            _join(place, world.device, timeout_s)
            yield world
        except BaseException:
            _leave(lost=True)
            raise
        else:
            _leave(lost=False)
        finally:
            torch.set_num_threads(threads_before)

    @property
    def rank(self) -> int:
        """This rank, 0 .. num_ranks - 1."""
        return self.place.rank

    @property
    def num_ranks(self) -> int:
        """How many ranks there are."""
        return self.place.num_ranks

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that acts where one acts for all."""
        return self.place.rank == 0

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(torch.zeros(1))

    def broadcast(self, value: T) -> T:
        """Rank 0's plain value on every rank; what the other ranks pass is ignored."""
        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[no-any-return]

    def gather(self, value: T) -> list[T]:
        """The plain values of all ranks, in rank order, on every rank."""
        values: list[Any] = [None] * self.num_ranks
        dist.all_gather_object(values, value)
        return values

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks, in place; a CPU tensor travels by gloo, a CUDA tensor by nccl."""
        dist.all_reduce(tensor)
        return tensor

    def start_sum(self, tensor: Tensor) -> dist.Work:
        """As `sum`, but returns at once; `wait()` on the result before reading the tensor."""
        work: dist.Work = dist.all_reduce(tensor, async_op=True)
        return work

    @contextmanager
    def rank0_first(self) -> Iterator[None]:
        """Run the block on rank 0 before all others, for downloads and caches.

        Raises:
            RunError: on the other ranks, where it failed on rank 0.
        """
        failed: str | None = None
        if not self.is_main:
            failed = self.broadcast(failed)
            if failed is not None:
                raise RunError(explain(f"rank 0 failed in what it does first: {failed}", where=f"rank {self.rank}"))
            yield
            return
        try:
            yield
        except Exception as error:
            self.broadcast(f"{type(error).__name__}: {error}")
            raise
        self.broadcast(failed)


def _bind(place: Place, device: str) -> torch.device:
    """The device of this rank, bound before anything else touches CUDA."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if place.rank_of_node >= seen:
        text = f"rank {place.rank} needs GPU {place.rank_of_node}, torch sees {seen}"
        raise UserError(explain(text, "one GPU for each rank of a node", next_step="lower --nproc, or run.device=cpu"))
    bound = torch.device("cuda", place.rank_of_node)
    torch.cuda.set_device(bound)
    return bound


_left: list[Any] = []
"""The groups that were left last; freed from Python, and not by a model, they cannot block."""


def _leave(lost: bool) -> None:
    """Leave the process group.

    Args:
        lost: this rank has failed, and may have left collectives that the others never join; nccl would wait for them.
    """
    if not dist.is_initialized():
        return
    # A wrapped model that outlives its group can abort the process at exit: collect it first.
    gc.collect()
    # One that a frame still holds must not be the last to let a group go: torch may deadlock on that.
    _left[:] = list(dist.distributed_c10d._world.pg_map)
    if lost and "nccl" in dist.get_backend_config():
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()


def _fresh_store(timeout: timedelta) -> dict[str, Any]:
    """After a restart, keys of our own: torchrun's store still holds the addresses of the ranks that are gone."""
    number, _ = restarts()
    if number == 0:
        return {}
    store, rank, num_ranks = next(rendezvous("env://", timeout=timeout))
    return {"store": PrefixStore(f"start-{number}", store), "rank": rank, "world_size": num_ranks}


def _join(place: Place, device: torch.device, timeout_s: float) -> None:
    cuda = device.type == "cuda"
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    timeout = timedelta(seconds=timeout_s)
    device_id = device if cuda else None
    if launched():
        if _number("MASTER_PORT") == 0:
            must = "a real port: every rank would wait for one that does not exist"
            raise UserError(explain("MASTER_PORT is 0", must, "environment", "torchrun --standalone picks a free one"))
        dist.init_process_group(backend, timeout=timeout, device_id=device_id, **_fresh_store(timeout))
    else:
        store = torch._C._distributed_c10d.HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout, device_id=device_id)
