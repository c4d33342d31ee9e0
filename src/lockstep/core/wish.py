"""How a user wishes a program to be launched, as it is typed; the same for every verb that launches."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wish:
    """What was asked for; None is "not said".

    nproc: ranks on this machine. num_nodes, node_rank: machines, and which of them this one is. master: `HOST[:PORT]`
    where node 0 is reached. wait_s: seconds to wait for the other machines. restarts: how often to start again after a
    failure. stall_timeout_s: seconds without progress after which the run is ended, 0 for never. log_dir: folder of the
    ranks' log files. all_ranks: show what every rank says.
    """

    nproc: int | None = None
    num_nodes: int | None = None
    node_rank: int | None = None
    master: str | None = None
    wait_s: float | None = None
    restarts: int = 0
    stall_timeout_s: float | None = None
    log_dir: Path | None = None
    all_ranks: bool = False
