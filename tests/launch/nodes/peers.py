"""Launchers that only meet: processes of their own, which then do what a test asks them to."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from lockstep.core.errors import LockstepError
from lockstep.launch.nodes import DEFAULT_PORT, Nodes
from tests.ranks import PRELOAD


class Peer:
    """One node: `answer` is what came of `meet`, `ask` calls a method of the meeting."""

    def __init__(
        self,
        nodes: Nodes,
        before: Callable[[], None] | None = None,
        ranks: int = 1,
        facts: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, nodes, before, ranks, facts or {}, env or {}))
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def answer(self, timeout_s: float = 20) -> Any:
        """What the process says next.

        Raises:
            AssertionError: nothing within that time, or it has ended.
        """
        assert self._pipe.poll(timeout_s), f"no answer within {timeout_s:g} s"
        return self._pipe.recv()

    def met(self, timeout_s: float = 20) -> dict[str, Any]:
        """The facts of the meeting."""
        answer = self.answer(timeout_s)
        assert "error" not in answer, answer
        return dict(answer)

    def error(self, timeout_s: float = 20) -> str:
        """The message of the error that `meet` raised, its class in front."""
        answer = self.answer(timeout_s)
        assert "error" in answer, answer
        return str(answer["error"])

    def ask(self, method: str, *args: Any, timeout_s: float = 20) -> Any:
        """Call a method of its meeting."""
        self._pipe.send((method, args))
        answer = self.answer(timeout_s)
        if isinstance(answer, dict) and "raised" in answer:
            raise AssertionError(answer["raised"])
        return answer

    def stop(self) -> None:
        """What a signal does to a launcher that waits."""
        self._pipe.send("stop")

    def heard(self, node: int) -> tuple[float, str]:
        """What it has heard of a node."""
        return self.ask("heard").get(node, (-1.0, ""))  # type: ignore[no-any-return]

    def until(self, reached: Callable[["Peer"], bool], timeout_s: float = 20) -> float:
        """Wait for something. Returns the seconds that it took."""
        started = time.monotonic()
        while not reached(self):
            assert time.monotonic() - started < timeout_s, self.ask("heard")
            time.sleep(0.05)
        return time.monotonic() - started

    def end(self) -> None:
        """Kill it if it still runs."""
        self._pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()


def _main(
    pipe: Connection,
    nodes: Nodes,
    before: Callable[[], None] | None,
    ranks: int,
    facts: Mapping[str, str],
    env: Mapping[str, str],
) -> None:
    from lockstep.launch.nodes.meeting import Meeting, meet

    os.environ.update(env)
    if before is not None:
        before()

    def stopped() -> bool:
        return pipe.poll() and pipe.recv() == "stop"

    started = time.monotonic()
    try:
        meeting = meet(nodes, ranks, facts, stopped)
    except LockstepError as error:
        pipe.send({"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - started})
        return
    with meeting:
        meeting._stopped = lambda: False  # type: ignore[attr-defined]  # the pipe now carries requests
        names = ("node", "num_nodes", "address", "interface", "ranks_per_node", "clock_ahead_s")
        pipe.send({name: getattr(meeting, name) for name in names})
        _serve(pipe, meeting, Meeting)


def _serve(pipe: Connection, meeting: Any, kind: type) -> None:
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(globals()[f"_{method}"](meeting, *args) if method in _OURS else getattr(meeting, method)(*args))
        except LockstepError as error:
            pipe.send({"raised": f"{type(error).__name__}: {error}"})
        if method == "close":
            return


_OURS = ("store", "rtt_s")


def _rtt_s(meeting: Any) -> float:
    """How long a new connection to node 0 takes: a round trip."""
    started = time.monotonic()
    socket.create_connection((meeting.address, DEFAULT_PORT)).close()
    return time.monotonic() - started


def _store(meeting: Any, attempt: int) -> list[str]:
    """Meet for an attempt, and say hello to each other through its store."""
    info = meeting.rendezvous(attempt).next_rendezvous()
    info.store.set(f"hello/{info.rank}", f"node {info.rank} of {info.world_size}")
    words = [info.store.get(f"hello/{node}").decode() for node in range(info.world_size)]
    place = info.bootstrap_store_info
    info.store.add("left", 1)
    while info.rank == 0 and info.store.add("left", 0) < info.world_size:
        time.sleep(0.01)
    return [*words, place.master_addr]
