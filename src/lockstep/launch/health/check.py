"""The words of a health check: what was looked at, how it is, what was seen, what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lockstep.launch.nodes import Nodes

Status = Literal["ok", "warn", "fail"]
ORDER: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Check:
    """One line of the report.

    group: what it belongs to (`network`). name: what was looked at (`host name`). status: `ok`; `warn`: works, but
    slower or more fragile than need be; `fail`: a run on this machine will not work. seen: what was found, with its
    value. advice: what to do; "" where nothing is to be done.
    """

    group: str
    name: str
    status: Status
    seen: str
    advice: str = ""


@dataclass(frozen=True)
class Asked:
    """What the machine is to be able to do. ranks_per_node: ranks on this machine. environ: the variables that a
    launch would see."""

    ranks_per_node: int = 1
    nodes: Nodes = field(default_factory=Nodes)
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether more than one machine takes part."""
        return self.nodes.num_nodes > 1


def size(num_bytes: float) -> str:
    """`512 B`, `64 KiB`, `8 MiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"
