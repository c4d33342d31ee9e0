"""From "this is node 1 of 2, node 0 is at gpu-a" to a meeting of all launchers, which stays open during the run."""

import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

from torch.distributed.elastic.rendezvous import RendezvousHandler

from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.launch.nodes import DEFAULT_PORT, Nodes, trouble
from lockstep.launch.nodes.hub import Hub, listen
from lockstep.launch.nodes.interfaces import check_named, interface_of, listed
from lockstep.launch.nodes.mirror import Mirror
from lockstep.launch.nodes.rendezvous import NodesRendezvous
from lockstep.launch.nodes.roster import Card, Roster
from lockstep.launch.nodes.spoke import Spoke
from lockstep.launch.nodes.trouble import StoppedError
from lockstep.launch.rendezvous import HOST, LocalRendezvous

SAY_AFTER_S = 5.0
_TICK_S = 0.1


def meet(
    nodes: Nodes, ranks_per_node: int, facts: Mapping[str, str], stopped: Callable[[], bool] = lambda: False
) -> "Meeting":
    """Wait until the launchers of all nodes are there and agree.

    The nodes may be started in any order. After some seconds of waiting a line on stderr says for whom.

    Args:
        nodes: who takes part.
        ranks_per_node: how many ranks this node starts; nodes may differ.
        facts: what must be equal on all nodes, by a name that a user understands.
        stopped: asked many times a second: whether to give up.

    Raises:
        UserError: what this user has said cannot be (a port in use, `node` out of range, an interface that does not
            exist), or two nodes disagree (facts, number of nodes, the same rank twice). Every node raises it.
        RunError: not all nodes came within `nodes.wait_s`; or another program answers in place of node 0.
        StoppedError: `stopped` said so.
    """
    check(nodes)
    if nodes.num_nodes == 1:
        return Meeting(ranks_per_node)
    check_named(os.environ, nodes.node)
    meeting = NodesMeeting(nodes, Roster(Card.mine(nodes, ranks_per_node, facts)), stopped)
    try:
        meeting.wait()
        check_named(os.environ, nodes.node, meeting.roster.card.address)
    except BaseException:
        meeting.close()
        raise
    return meeting


def check(nodes: Nodes) -> None:
    """Whether what one user has said can be; raises a UserError where it cannot."""
    if nodes.num_nodes < 1:
        raise UserError(explain(f"`--nnodes` is {nodes.num_nodes}", "at least 1"))
    if not 0 <= nodes.node < nodes.num_nodes:
        raise UserError(
            explain(
                f"`--node-rank {nodes.node}` with `--nnodes {nodes.num_nodes}`",
                f"a number from 0 to {nodes.num_nodes - 1}, another one on every machine",
            )
        )
    if not 0 <= nodes.port < 65536:
        raise UserError(explain(f"`--master` names port {nodes.port}", "a port from 1 to 65535"))
    if nodes.num_nodes > 1 and nodes.node and not nodes.host:
        raise UserError(
            explain(
                f"node {nodes.node} does not know where node 0 is",
                next_step="give `--master HOST[:PORT]`, the name or address of the machine with `--node-rank 0`",
            )
        )


class Meeting:
    """One machine, which meets nobody; `NodesMeeting` is the one for several. Leave it by `close` or `with`.

    node, num_nodes: which of how many. address: of node 0, numeric, as this node reaches it. interface: name of the
    one towards the other nodes, "lo" on one machine. ranks_per_node: by node. names: of the machines, by node, for
    messages. clock_ahead_s: this machine's clock minus node 0's, in seconds, known to half a round trip.
    """

    def __init__(self, ranks_per_node: int) -> None:
        self.node, self.num_nodes = 0, 1
        self.address, self.interface = HOST, interface_of(HOST)
        self.ranks_per_node: tuple[int, ...] = (ranks_per_node,)
        self.names: tuple[str, ...] = (socket.gethostname(),)
        self.clock_ahead_s = 0.0

    def rendezvous(self, attempt: int) -> RendezvousHandler:
        """For torch's elastic agent. It waits for all nodes; ranks use the agent's store, by a numeric address."""
        return LocalRendezvous()

    def tell(self, text: str) -> None:
        """Leave the latest progress of this node's ranks; it is sent once a second. Never blocks."""

    def heard(self) -> dict[int, tuple[float, str]]:
        """The other nodes that take part: seconds since each was last alive, and its latest `tell`.

        Seconds grow while the link is cut, and fall when it is back; `inf` is a launcher that has died, or has left
        without a report. A node that has closed its meeting after its report is not in it.
        """
        return {}

    def finish(self, attempt: int, text: str) -> None:
        """This node's ranks have ended: tell the others how."""

    def finished(self, attempt: int, wait_s: float = 0.0) -> dict[int, str]:
        """What the other nodes have said in `finish`, by node.

        Args:
            attempt: which one.
            wait_s: until all have said it, or those that have not are gone; seconds at most.
        """
        return {}

    def close(self) -> None:
        """Leave. What was said is sent before, for two seconds at most. Twice is once."""

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NodesMeeting(Meeting):
    """Several machines, or several launchers on one. A thread keeps the link; nothing here waits for the network."""

    def __init__(self, nodes: Nodes, roster: Roster, stopped: Callable[[], bool]) -> None:
        super().__init__(roster.card.ranks)
        self.roster = roster
        self._nodes, self._stopped = nodes, stopped
        self._port = nodes.port or DEFAULT_PORT
        self.node, self.num_nodes = nodes.node, nodes.num_nodes
        self._mirror: Mirror | None = None
        self._link: Hub | Spoke
        if nodes.node == 0:
            self._link = Hub(roster, listen(self._port))
            if nodes.host:
                self._mirror = Mirror(roster, nodes.host, self._port)
                self._mirror.start()
        else:
            self._link = Spoke(roster, nodes.host, self._port)
        self._link.start()

    def wait(self) -> None:
        """Until all are there and agree; raises as `meet` says."""
        started, said, roster = time.monotonic(), False, self.roster
        while not roster.met or roster.error is not None:
            with roster.changed:
                if not roster.met and roster.error is None:
                    roster.changed.wait(_TICK_S)
            waited = time.monotonic() - started
            if roster.error is None and not roster.met:
                if self._stopped():
                    raise StoppedError("Stopped while waiting for the other nodes.")
                if waited > self._nodes.wait_s or self._answered_wrongly():
                    roster.fail(self._not_met())
                elif waited > SAY_AFTER_S and not said:
                    said = True
                    print(self._waiting(), file=sys.stderr, flush=True)
            if roster.error is not None:
                raise roster.error
        self._settle()

    def rendezvous(self, attempt: int) -> RendezvousHandler:
        """For torch's elastic agent: it waits until all nodes want this attempt."""
        return NodesRendezvous(self.roster, attempt, self._nodes.wait_s, self._stopped)

    def tell(self, text: str) -> None:
        """Leave the latest progress of this node's ranks; it is sent once a second. Never blocks."""
        self.roster.say(tell=text)

    def heard(self) -> dict[int, tuple[float, str]]:
        """The other nodes that take part: seconds since each was last alive (`inf`: gone), and its latest `tell`."""
        now = time.monotonic()
        with self.roster.changed:
            return {
                node: (math.inf if other.gone else max(0.0, now - other.heard_at), other.words.tell)
                for node, other in sorted(self.roster.others.items())
                if not other.ended
            }

    def finish(self, attempt: int, text: str) -> None:
        """This node's ranks have ended: tell the others how, at once."""
        self.roster.say(reports={**self.roster.mine.reports, attempt: text})

    def finished(self, attempt: int, wait_s: float = 0.0) -> dict[int, str]:
        """What the other nodes have said in `finish`, by node; waits for those that are not gone."""
        deadline = time.monotonic() + wait_s
        with self.roster.changed:
            while True:
                others = self.roster.others.items()
                reports = {n: one.words.reports[attempt] for n, one in sorted(others) if attempt in one.words.reports}
                silent = [n for n, one in others if n not in reports and not one.gone and not one.ended]
                left_s = deadline - time.monotonic()
                if not silent or self._deaf() or left_s <= 0:
                    return reports
                self.roster.changed.wait(min(left_s, _TICK_S))

    def close(self) -> None:
        """Leave. What was said is sent before, for two seconds at most. Twice is once."""
        if self._mirror is not None:
            self._mirror.close()
        if self._link.is_alive():
            self.roster.say(left=True)
            self._link.close()

    def _deaf(self) -> bool:
        """Whether nothing can be heard any more: all is heard through node 0."""
        hub = self.roster.others.get(0)
        return hub is not None and (hub.gone or hub.words.left)

    def _settle(self) -> None:
        cards = [self.roster.cards[node] for node in range(self.num_nodes)]
        # As node 0 has seen it: the host name may lead to a virtual address in front of it.
        reached = self.roster.cards[self.node].reached
        mine = self.roster.card = replace(self.roster.card, reached=reached)
        self.address = mine.address if self.node == 0 else mine.reached
        self.interface = mine.interface or interface_of(mine.address)
        self.ranks_per_node = tuple(card.ranks for card in cards)
        self.names = tuple(card.name for card in cards)
        self.clock_ahead_s = self.roster.ahead_s

    def _answered_wrongly(self) -> bool:
        return isinstance(self._link, Spoke) and self._link.last is not None and self._link.last.kind == "foreign"

    def _not_met(self) -> LockstepError:
        nodes, link = self._nodes, self._link
        if isinstance(link, Spoke) and (last := link.last or self._never()) is not None:
            return trouble.not_reached(nodes.node, nodes.host, self._port, nodes.wait_s, last)
        there = [str(card) for node, card in sorted(self.roster.cards.items()) if node != nodes.node]
        leads = self._mirror.said() if self._mirror is not None else ""
        return trouble.not_come(self.roster.missing(), nodes.num_nodes, nodes.wait_s, self._here(), there, leads)

    def _never(self) -> trouble.Try | None:
        """Connecting for the first time has not ended yet."""
        return None if 0 in self.roster.cards else trouble.Try("silent")

    def _here(self) -> str:
        mine = self.roster.card
        if self.node == 0:
            return f"node 0 ({mine.name}) listens on port {self._port} of all its interfaces: {listed()}"
        return f"{mine} is connected with node 0 at {mine.reached}:{self._port}, by {mine.interface}"

    def _waiting(self) -> str:
        nodes, missing = self._nodes, ", ".join(str(node) for node in self.roster.missing())
        if self.node and isinstance(self._link, Spoke) and (self._link.last or 0 not in self.roster.cards):
            return (
                f"node {self.node} tries to reach node 0 at {nodes.host}:{self._port}, for {nodes.wait_s:g} s at most"
            )
        return f"node {self.node} waits for node {missing}, for {nodes.wait_s:g} s at most ({self._here()})"
