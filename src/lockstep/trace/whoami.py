"""A process among the ranks, as the recorder needs to know it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Whoami:
    """launch: `torchrun` (the script finds its variables), `single` (one process without them), `spawn` (a child of
    the script's own)."""

    rank: int = 0
    num_ranks: int = 1
    rank_of_node: int = 0
    ranks_per_node: int = 1
    launch: Literal["torchrun", "single", "spawn"] = "single"
