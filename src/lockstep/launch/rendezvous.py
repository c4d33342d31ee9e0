"""The meeting point of one machine's ranks: a store of the launcher's on a free port of the loopback interface."""

import socket
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

HOST = "127.0.0.1"


class OwnStore(RendezvousHandler):
    """What torch's agent asks of a meeting point whose store is our own, and belongs to one attempt."""

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks connect to the agent's store instead of opening one in rank 0."""
        return True

    def is_closed(self) -> bool:
        """Never: launchers tell each other by other means."""
        return False

    def set_closed(self) -> None:
        """Nothing to tell anybody."""

    def num_nodes_waiting(self) -> int:
        """No further machine may join."""
        return 0

    def get_run_id(self) -> str:
        """The store is private, so its name need not be unique."""
        return "lockstep"

    def shutdown(self) -> bool:
        """The store ends with this object."""
        return True


class LocalRendezvous(OwnStore):
    """One agent that meets nobody: no host names are resolved, no other machine can connect, no port can collide.

    The port is bound before anything is told of it, and the ranks use the agent's store: there is no moment in
    which another program could take it. Several machines meet in `nodes/`.
    """

    def __init__(self) -> None:
        listener = socket.create_server((HOST, 0))
        self._port: int = listener.getsockname()[1]
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            HOST,
            self._port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=60),
            master_listen_fd=listener.detach(),
        )

    def get_backend(self) -> str:
        """Name of this kind of meeting point, for torch's events."""
        return "local"

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet: this agent is number 0 of 1."""
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo(HOST, self._port))
