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
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from lockstep.core.errors import RunError, explain
from lockstep.launch.nodes import trouble
from lockstep.launch.nodes.board import Board, Words
from lockstep.launch.nodes.hub import listen
from lockstep.launch.nodes.trouble import StoppedError

_STORE_S = 30.0
_KNOCK_S = 1.5
_TICK_S = 0.1


class NodesRendezvous(RendezvousHandler):
    """One attempt to start the ranks of all nodes: the store is opened when every node is ready for it.

    Ranks use the agent's store by its numeric address, as this node has reached it: they resolve no name. A new store
    for each attempt holds no keys of the one before.
    """

    def __init__(self, board: Board, attempt: int, wait_s: float, stopped: Callable[[], bool]) -> None:
        self._board, self._attempt, self._wait_s, self._stopped = board, attempt, wait_s, stopped

    def get_backend(self) -> str:
        """Name of this kind of meeting point, for torch's events."""
        return "nodes"

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks connect to the agent's store instead of opening one in rank 0."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet: wait until all nodes want this attempt.

        Raises:
            RunError: a node is gone, is not ready in time, or cannot reach the store.
            StoppedError: a signal came.
        """
        board = self._board
        board.say(want=self._attempt)
        if board.card.node == 0:
            self._wait(lambda: all(words.want >= self._attempt for words in self._others()))
            store, port = self._serve()
        else:
            self._wait(lambda: board.store is not None and board.store[0] >= self._attempt)
            store, port = self._join()
        # What the agents do next blocks in the store, and cannot be interrupted: all are there before it.
        board.say(joined=self._attempt)
        self._wait(lambda: all(words.joined >= self._attempt for words in self._others()))
        return RendezvousInfo(store, board.card.node, board.card.num_nodes, RendezvousStoreInfo(self._address(), port))

    def _serve(self) -> tuple[Any, int]:
        reached = {card.reached for card in self._board.cards.values() if card.node}
        listener = listen(0, reached.pop() if len(reached) == 1 else "")
        port = int(listener.getsockname()[1])
        store = self._store(port, listener.detach())
        with self._board.changed:
            self._board.store = (self._attempt, port)
        self._board.wake()
        return store, port

    def _join(self) -> tuple[Any, int]:
        assert self._board.store is not None
        attempt, port = self._board.store
        if attempt != self._attempt:
            raise RunError(explain(f"the other nodes have begun attempt {attempt} without this one"))
        self._knock(port)
        try:
            return self._store(port), port
        except dist.DistError as error:
            raise trouble.ports_closed(self._board.card.node, self._address(), port, str(error)) from error

    def _knock(self, port: int) -> None:
        """Wait until the port answers; the store itself could not be interrupted in this."""
        deadline = time.monotonic() + _STORE_S
        while True:
            try:
                socket.create_connection((self._address(), port), _KNOCK_S).close()
                return
            except OSError as error:
                with self._board.changed:
                    self._look_out()
                if time.monotonic() > deadline:
                    raise trouble.ports_closed(self._board.card.node, self._address(), port, str(error)) from error
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
        card = self._board.card
        return card.address if card.node == 0 else card.reached

    def _others(self) -> list[Words]:
        others, mine = self._board.others, self._board.card
        return [
            others[node].words if node in others else Words() for node in range(mine.num_nodes) if node != mine.node
        ]

    def _wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._wait_s
        board = self._board
        with board.changed:
            while not reached():
                self._look_out()
                if time.monotonic() > deadline:
                    late = [node for node, other in board.others.items() if other.words.joined < self._attempt]
                    raise RunError(explain(f"nodes {late} were not ready to start within {self._wait_s:g} s"))
                board.changed.wait(_TICK_S)

    def _look_out(self) -> None:
        """Whether waiting has become vain."""
        for node, other in self._board.others.items():
            if other.gone or other.ended:
                raise self._left(node)
        if self._stopped():
            raise StoppedError("Stopped while waiting for the other nodes.")

    def _left(self, node: int) -> RunError:
        who = str(self._board.cards.get(node, f"node {node}"))
        seen = f"node {node} has left before the ranks were started"
        return RunError(explain(seen, where=who, next_step="look at what its launcher says"))

    def is_closed(self) -> bool:
        """Never: nodes that leave say so to each other by other means."""
        return False

    def set_closed(self) -> None:
        """Nothing to tell anybody."""

    def num_nodes_waiting(self) -> int:
        """No further machine may join."""
        return 0

    def get_run_id(self) -> str:
        """The store is private to one attempt, so its name need not be unique."""
        return "lockstep"

    def shutdown(self) -> bool:
        """The store ends with this object."""
        return True


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
