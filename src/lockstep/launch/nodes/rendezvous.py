"""The meeting point of the ranks of several machines: a store on node 0, on a new port for each attempt."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

from lockstep.core.errors import RunError, explain
from lockstep.launch.nodes import trouble
from lockstep.launch.nodes.hub import listen
from lockstep.launch.nodes.roster import Roster, Words
from lockstep.launch.nodes.trouble import StoppedError
from lockstep.launch.rendezvous import OwnStore

_STORE_S = 30.0
_KNOCK_S = 1.5
_TICK_S = 0.1


class NodesRendezvous(OwnStore):
    """One attempt to start the ranks of all nodes: the store is opened when every node is ready for it.

    Ranks use the agent's store by its numeric address, as this node has reached it: they resolve no name. A new store
    for each attempt holds no keys of the one before.
    """

    def __init__(self, roster: Roster, attempt: int, wait_s: float, stopped: Callable[[], bool]) -> None:
        self._roster, self._attempt, self._wait_s, self._stopped = roster, attempt, wait_s, stopped

    def get_backend(self) -> str:
        """Name of this kind of meeting point, for torch's events."""
        return "nodes"

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet: wait until all nodes want this attempt.

        Raises:
            RunError: a node is gone, is not ready in time, or cannot reach the store.
            StoppedError: a signal came.
        """
        roster = self._roster
        roster.say(want=self._attempt)
        if roster.card.node == 0:
            self._wait(lambda: all(words.want >= self._attempt for words in self._others()))
            store, port = self._serve()
        else:
            self._wait(lambda: roster.store is not None and roster.store[0] >= self._attempt)
            store, port = self._join()
        # What the agents do next blocks in the store, and cannot be interrupted: all are there before it.
        roster.say(joined=self._attempt)
        self._wait(lambda: all(words.joined >= self._attempt for words in self._others()))
        return RendezvousInfo(
            store, roster.card.node, roster.card.num_nodes, RendezvousStoreInfo(self._address(), port)
        )

    def _serve(self) -> tuple[Any, int]:
        reached = {card.reached for card in self._roster.cards.values() if card.node}
        listener = listen(0, reached.pop() if len(reached) == 1 else "")
        port = int(listener.getsockname()[1])
        store = self._store(port, listener.detach())
        with self._roster.changed:
            self._roster.store = (self._attempt, port)
        self._roster.wake()
        return store, port

    def _join(self) -> tuple[Any, int]:
        assert self._roster.store is not None
        attempt, port = self._roster.store
        if attempt != self._attempt:
            raise RunError(explain(f"the other nodes have begun attempt {attempt} without this one"))
        self._knock(port)
        try:
            return self._store(port), port
        except dist.DistError as error:
            raise trouble.ports_closed(self._roster.card.node, self._address(), port, str(error)) from error

    def _knock(self, port: int) -> None:
        """Wait until the port answers; the store itself could not be interrupted in this."""
        deadline = time.monotonic() + _STORE_S
        while True:
            try:
                socket.create_connection((self._address(), port), _KNOCK_S).close()
                return
            except OSError as error:
                with self._roster.changed:
                    self._look_out()
                if time.monotonic() > deadline:
                    raise trouble.ports_closed(self._roster.card.node, self._address(), port, str(error)) from error
            time.sleep(_TICK_S)

    def _store(self, port: int, listener: int | None = None) -> Any:
        with _hushed():
            return dist.TCPStore(  # type: ignore[attr-defined]
                self._address(),
                port,
                is_master=listener is not None,
                wait_for_workers=False,
                timeout=timedelta(seconds=_STORE_S),
                master_listen_fd=listener,
            )

    def _address(self) -> str:
        """Of node 0, as this node reaches it."""
        card = self._roster.card
        return card.address if card.node == 0 else card.reached

    def _others(self) -> list[Words]:
        others, mine = self._roster.others, self._roster.card
        return [
            others[node].words if node in others else Words() for node in range(mine.num_nodes) if node != mine.node
        ]

    def _wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._wait_s
        roster = self._roster
        with roster.changed:
            while not reached():
                self._look_out()
                if time.monotonic() > deadline:
                    late = [node for node, other in roster.others.items() if other.words.joined < self._attempt]
                    raise RunError(explain(f"nodes {late} were not ready to start within {self._wait_s:g} s"))
                roster.changed.wait(_TICK_S)

    def _look_out(self) -> None:
        """Whether waiting has become vain."""
        for node, other in self._roster.others.items():
            if other.gone or other.ended:
                raise self._left(node)
        if self._stopped():
            raise StoppedError("Stopped while waiting for the other nodes.")

    def _left(self, node: int) -> RunError:
        who = str(self._roster.cards.get(node, f"node {node}"))
        seen = f"node {node} has left before the ranks were started"
        return RunError(explain(seen, where=who, next_step="look at what its launcher says"))


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep a warning of the store's off the screen: that an address has no name matters to nobody here."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
