"""A user's script as one of N ranks, recorded."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from lockstep.launch import record
from lockstep.launch.guard import leave
from lockstep.runtime.world import Place
from lockstep.trace.feed import Feed, FeedPlan
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.script import Program, run_script
from lockstep.trace.whoami import Whoami

_TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE"),
)


@dataclass(frozen=True)
class Manner:
    """How a script finds itself started.

    single: as `python script.py`, without torchrun's variables. nodes: every rank is a node of its own (LOCAL_RANK 0).
    threads: of torch in each rank, None for torchrun's own choice. fed: the feed's rank is the process's own; False: it
    is as given. cpu: no GPU is to be seen. prepare: called when the hooks are in place.
    """

    single: bool = False
    nodes: bool = False
    threads: int | None = None
    fed: bool = True
    cpu: bool = False
    prepare: Callable[[Recorder, Feed | None], None] | None = None


def script_rank(program: Program, plan: Plan, feed: FeedPlan | None = None, manner: Manner = Manner()) -> None:
    """What a launched rank runs: the script under the recorder."""
    place = Place.from_environment()
    folder = record.failures_folder()
    assert folder is not None, "a rank that the launcher started"
    if manner.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if manner.single:
        for name in _TORCHRUN:
            os.environ.pop(name, None)
    elif manner.nodes:
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_RANK=str(place.rank))
        os.environ.update(GROUP_WORLD_SIZE=str(place.num_ranks))
    threads = manner.threads or (1 if place.num_ranks > 1 else None)
    if threads is not None:
        torch.set_num_threads(threads)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    if feed is not None and manner.fed and feed.role == "shard":
        feed = replace(feed, rank=place.rank, num_ranks=place.num_ranks)

    def enough() -> None:
        record.write_done(folder, place.rank)
        leave(0)

    run_script(program, plan, _whoami(place, manner), feed, enough, manner.prepare)


def _whoami(place: Place, manner: Manner) -> Whoami:
    if manner.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if manner.single:
        return Whoami()
    if manner.nodes:
        return Whoami(place.rank, place.num_ranks, 0, 1, "torchrun")
    return Whoami(place.rank, place.num_ranks, place.rank_of_node, place.ranks_per_node, "torchrun")
