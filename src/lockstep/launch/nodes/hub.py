"""Node 0's side: listens, admits the other nodes, and tells each of them what all say."""

import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace

from lockstep.core.errors import LockstepError, RunError, explain
from lockstep.launch.nodes import trouble
from lockstep.launch.nodes.interfaces import interface_of, is_loopback
from lockstep.launch.nodes.roster import Card, Roster, Words, differing, error_message
from lockstep.launch.nodes.wakeup import Wakeup
from lockstep.launch.nodes.wire import FAMILY, MAGIC, Line, Message, NotOursError, local_address, own, peer_address

BEAT_S = 1.0
"""How often either side is heard at least."""
STRANGER_S = 10.0
"""How long a connection may stay without a word. Scanners of ports come and go."""
SILENT_S = 15.0
LIVES_S = 4.0
LINGER_S = 2.0


def listen(port: int, address: str = "") -> socket.socket:
    """Listen on a port of one address, or of all interfaces, IPv4 and IPv6.

    Args:
        port: 0 for a free one.
        address: numeric.

    Raises:
        UserError: the port is in use, with its holder, or may not be used.
    """
    try:
        if address:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return own(socket.create_server((address.partition("%")[0], port), family=family))
        if socket.has_dualstack_ipv6():
            with suppress(OSError):  # IPv6 may be switched off; a port in use is found below as well
                return own(socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True))
        return own(socket.create_server(("", port)))
    except OSError as error:
        raise trouble.port_taken(port, error) from error


class Hub(threading.Thread):
    """The thread of node 0. Everything it learns is on the roster; `close` says goodbye to all."""

    def __init__(self, roster: Roster, listener: socket.socket) -> None:
        super().__init__(name="nodes hub", daemon=True)
        self._roster, self._listener = roster, listener
        self._wakeup = Wakeup()
        self._selector = selectors.PollSelector()  # nothing that a forked child would share
        self._strangers: dict[Line, float] = {}
        self._lines: dict[int, Line] = {}
        self._closing = threading.Event()
        self._beat_at = 0.0
        listener.setblocking(False)
        roster.cards[0] = roster.card
        roster.wake = self._wakeup.wake

    def run(self) -> None:
        """Serve until `close`."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakeup.sock, selectors.EVENT_READ)
        try:
            while not self._closing.is_set():
                self._serve(max(0.0, self._beat_at - time.monotonic()))
            self._say_goodbye()
        finally:
            for line in [*self._strangers, *self._lines.values()]:
                line.close()
            self._selector.close()
            self._listener.close()
            self._wakeup.close()

    def close(self) -> None:
        """End the thread, after what is still to be said has been sent."""
        self._closing.set()
        self._wakeup.wake()
        self.join(LINGER_S + 1.0)

    def _serve(self, timeout_s: float) -> None:
        urgent = False
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wakeup.sock:
                self._wakeup.clear()
                urgent = True
            else:
                urgent |= self._hear(key.data)
        self._drop_the_silent()
        if urgent or time.monotonic() >= self._beat_at:
            self._tell_all()

    def _accept(self) -> None:
        with suppress(OSError):
            line = Line(self._listener.accept()[0])
            self._strangers[line] = time.monotonic()
            self._selector.register(line.sock, selectors.EVENT_READ, line)

    def _hear(self, line: Line) -> bool:
        """Take what came on a connection. Returns whether the others must learn of it at once."""
        urgent = False
        try:
            for message in line.receive():
                if line in self._strangers:
                    self._greet(line, message)
                    urgent = True
                else:
                    urgent |= self._note(next(node for node, own in self._lines.items() if own is line), message)
        except (NotOursError, KeyError, TypeError, ValueError, AttributeError, StopIteration, OSError):
            line.ended = True
        if line.ended:
            self._drop(line)
        return urgent

    def _note(self, node: int, message: Message) -> bool:
        words = Words.from_message(message)
        before = self._roster.others.get(node)
        self._roster.hear(node, words)
        return before is None or before.words.urgent() != words.urgent()

    def _greet(self, line: Line, message: Message) -> None:
        """The first message of a connection: a node comes, or comes back."""
        if message.get("lockstep") != MAGIC:
            ours = str(message.get("lockstep")).startswith(FAMILY)
            self._refuse(line, trouble.other_version(peer_address(line.sock)), for_all=ours)
            return
        card = Card.from_message(message["card"])
        if (met := message.get("met")) and met != self._roster.card.token:
            # A launcher that has outlived its node 0.
            self._refuse(line, RunError(explain("node 0 was started anew: this launch is over")), for_all=False)
        elif card.node == 0 and card.token == self._roster.card.token:
            line.send(self._state())  # node 0 itself, looking where its host name leads
            line.ended = True
        elif (error := self._objection(card)) is not None:
            self._refuse(line, error, for_all=True)
        else:
            self._strangers.pop(line)
            self._admit(card, line)

    def _objection(self, card: Card) -> LockstepError | None:
        mine = self._roster.card
        known = self._roster.cards.get(card.node)
        if known is not None and known.token != card.token and self._lives(card.node):
            return trouble.twice(card.node, str(known), str(card))
        if self._roster.met and (known is None or known.token != card.token):
            return RunError(explain(f"the launch has begun without {card}"))
        if card.num_nodes != mine.num_nodes:
            return trouble.other_count(str(card), card.num_nodes, mine.num_nodes)
        return None

    def _lives(self, node: int) -> bool:
        """Whether a node is here, so that another one cannot be the same, started again."""
        other = self._roster.others.get(node)
        return node == 0 or (node in self._lines and other is not None and time.monotonic() - other.heard_at < LIVES_S)

    def _admit(self, card: Card, line: Line) -> None:
        line.trust()
        if (old := self._lines.pop(card.node, None)) is not None:
            self._forget(old)
        self._lines[card.node] = line
        roster = self._roster
        card = replace(card, address=peer_address(line.sock), reached=local_address(line.sock))
        with roster.changed:
            roster.cards[card.node] = card
            roster.changed.notify_all()
        known = roster.others.get(card.node)
        roster.hear(card.node, known.words if known is not None and roster.met else Words())
        if not roster.met and not roster.missing():
            self._compare()

    def _compare(self) -> None:
        """All are there: do they agree?"""
        roster = self._roster
        others = [card for node, card in sorted(roster.cards.items()) if node]
        near = [card for card in others if is_loopback(card.reached)]
        far = [card for card in others if not is_loopback(card.reached)]
        error = differing(roster.cards)
        if error is None and near and far:
            error = trouble.two_ways(str(near[0]), str(far[0]))
        if error is not None:
            roster.fail(error)
            return
        with roster.changed:
            address = others[0].reached
            roster.card = replace(roster.card, address=address, interface=interface_of(address))
            roster.cards[0] = roster.card
            roster.met = True
            roster.changed.notify_all()

    def _refuse(self, line: Line, error: LockstepError, *, for_all: bool) -> None:
        """Say why. for_all: while nodes still meet, it is a reason for all of them to end."""
        if for_all and not self._roster.met:
            self._roster.fail(error)
        line.send({"lockstep": MAGIC, "error": error_message(error)})
        self._strangers[line] = time.monotonic()  # closed by the other side, or when its time is over

    def _drop(self, line: Line) -> None:
        self._forget(line)
        for node, one in list(self._lines.items()):
            if one is line:
                del self._lines[node]
                with self._roster.changed:
                    if not self._roster.met:
                        self._roster.cards.pop(node, None)
                self._roster.lose(node)

    def _forget(self, line: Line) -> None:
        self._strangers.pop(line, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(line.sock)
        line.close()

    def _drop_the_silent(self) -> None:
        now = time.monotonic()
        for line, since in list(self._strangers.items()):
            if line.ended or now - since > STRANGER_S:
                self._forget(line)
        for node, line in list(self._lines.items()):
            if now - self._roster.others[node].heard_at > SILENT_S and not self._roster.others[node].words.left:
                # Closed, not lost: a node behind a cut link is silent, and may come back on a new connection.
                self._forget(line)
                del self._lines[node]

    def _state(self) -> Message:
        """Everything, each time: what a lost connection has swallowed comes with the next."""
        roster, now = self._roster, time.monotonic()
        with roster.changed:
            heard = {
                node: {"age": None if other.gone else now - other.heard_at, "words": other.words.to_message()}
                for node, other in roster.others.items()
            }
            heard[0] = {"age": 0.0, "words": roster.mine.to_message()}
            return {
                "lockstep": MAGIC,
                "token": roster.card.token,
                "met": roster.met,
                "cards": [card.to_message() for card in roster.cards.values()],
                "heard": heard,
                "store": roster.store,
                "time_ns": time.time_ns(),
                "error": error_message(roster.error) if roster.error is not None else None,
            }

    def _tell_all(self) -> None:
        self._beat_at = time.monotonic() + BEAT_S
        state = self._state()
        for line in list(self._lines.values()):
            line.flush()
            if not line.busy:  # behind a cut link nothing is piled up
                line.send(state)
            if line.ended:
                self._drop(line)

    def _say_goodbye(self) -> None:
        self._tell_all()
        deadline = time.monotonic() + LINGER_S
        for line in [*self._strangers, *self._lines.values()]:
            with suppress(OSError):
                while line.busy and time.monotonic() < deadline:
                    time.sleep(0.01)
                    line.flush()
                line.sock.shutdown(socket.SHUT_WR)
        while self._lines and time.monotonic() < deadline:
            for key, _ in self._selector.select(0.05):
                if isinstance(key.data, Line):
                    self._hear(key.data)
