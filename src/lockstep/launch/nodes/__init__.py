"""Several machines as one launch: who takes part, how they meet, what each hears of the others."""

from dataclasses import dataclass

DEFAULT_PORT = 29415
"""Where node 0 listens if the user names no port. Below the range from which systems take free ports."""


@dataclass(frozen=True)
class Nodes:
    """Which machines take part, as the user or the scheduler says.

    num_nodes: how many machines. node: which of them this one is, from 0; node 0 hosts the meeting. host, port: where
    node 0 is reached, as the user states it on every machine (port 0: DEFAULT_PORT). wait_s: seconds that a node waits
    for the others before it gives up.
    """

    num_nodes: int = 1
    node: int = 0
    host: str = ""
    port: int = 0
    wait_s: float = 300.0
