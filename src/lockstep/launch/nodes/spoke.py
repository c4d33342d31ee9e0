"""The side of every other node: connects to node 0, again and again, and keeps the roster up to date."""

import select
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lockstep.launch.nodes import trouble
from lockstep.launch.nodes.hub import BEAT_S, LINGER_S
from lockstep.launch.nodes.interfaces import interface_of
from lockstep.launch.nodes.roster import GONE_S, Card, Roster, Words, error_from
from lockstep.launch.nodes.trouble import Try
from lockstep.launch.nodes.wakeup import Wakeup
from lockstep.launch.nodes.wire import FAMILY, MAGIC, Line, Message, NotOursError, local_address, own, peer_address

CONNECT_S = 4.0
"""For one try: two packets may get lost."""
RETRY_S = 0.5
CUT_S = 5.0
"""A connection on which nothing came for so long is given up for a new one; what is behind it may still live."""
MUTE_S = 10.0


class Spoke(threading.Thread):
    """The thread of a node that is not node 0. last: the latest try that failed, None while it is connected."""

    def __init__(self, roster: Roster, host: str, port: int) -> None:
        super().__init__(name="nodes spoke", daemon=True)
        self._roster, self._host, self._port = roster, host, port
        self._wakeup = Wakeup()
        self._closing = threading.Event()
        self._hub = ""  # token of node 0, once all have met
        self._peer = ""
        self._talking = self._known = False
        self._asked = self._heard_at = self._beat_at = 0.0
        self.last: Try | None = None
        roster.wake = self._wakeup.wake

    def run(self) -> None:
        """Connect and talk until `close`, or until there is nobody to talk to any more."""
        try:
            while not self._closing.is_set() and not self._over():
                line = self._connect()
                if line is None:
                    self._closing.wait(RETRY_S)
                    continue
                try:
                    self._talk(line)
                except (NotOursError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
                    self.last = Try("foreign", self._peer, f"it said {error}")
                    self._closing.wait(GONE_S)
                finally:
                    self._talking = False
                    line.close()
        finally:
            self._wakeup.close()

    def close(self) -> None:
        """End the thread, after what is still to be said has been sent. A try to connect ends by itself later."""
        self._closing.set()
        self._wakeup.wake()
        if self._talking:
            self.join(LINGER_S)

    def _over(self) -> bool:
        """Whether there is nothing to connect for: the meeting failed, or node 0 has left."""
        hub = self._roster.others.get(0)
        if self._hub and self._roster.error is not None:
            self._roster.lose(0, gone=True)
        return self._roster.error is not None or (hub is not None and hub.words.left)

    def _connect(self) -> Line | None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self.last = Try("name", "", str(error))
            return None
        for family, kind, protocol, _, target in dict.fromkeys(found):
            if self._closing.is_set():
                break
            try:
                return self._open(socket.socket(family, kind, protocol), target)
            except OSError as error:
                self.last = Try(trouble.kind_of(error), str(target[0]), error.strerror or str(error))
                if self.last.kind == "refused" and self._hub:
                    self._lost()
        return None

    def _open(self, sock: socket.socket, target: Any) -> Line:
        try:
            own(sock).settimeout(CONNECT_S)
            sock.connect(target)
            if sock.getsockname() == sock.getpeername():  # a free port of this machine can meet itself
                raise ConnectionRefusedError("only itself")
            self._peer = peer_address(sock)
            return Line(sock)
        except OSError:
            sock.close()
            raise

    def _talk(self, line: Line) -> None:
        """Until the connection ends, is silent for too long, or `close` is called."""
        self._talking, self._known = True, False
        self._asked = time.time()
        self._heard_at = self._beat_at = time.monotonic()
        line.send(self._hello(line))
        poll = select.poll()
        for sock in (line.sock, self._wakeup.sock):
            poll.register(sock, select.POLLIN)
        while not line.ended and not self._silent(line):
            if self._closing.is_set():
                self._say_goodbye(line)
                return
            self._beat(line)
            ready = [number for number, _ in poll.poll(1000 * max(0.0, self._beat_at - time.monotonic()))]
            if self._wakeup.sock.fileno() in ready:
                self._wakeup.clear()
                self._beat_at = time.monotonic()
            if line.sock.fileno() in ready:
                for message in line.receive():
                    self._take(message, line)
        if line.ended and self._hub:
            self._lost()
        elif line.ended and not self._known:
            self.last = Try("closed", self._peer)

    def _silent(self, line: Line) -> bool:
        silent_s = time.monotonic() - self._heard_at
        if not self._known and silent_s > MUTE_S:
            self.last = Try("foreign", self._peer, f"it said nothing for {MUTE_S:g} s")
        return silent_s > (CUT_S if self._known else MUTE_S)

    def _beat(self, line: Line) -> None:
        """Send all words, when it is time to."""
        line.flush()
        if time.monotonic() >= self._beat_at:
            if self._known and not line.busy:
                with self._roster.changed:
                    words = self._roster.mine.to_message()
                line.send(words)
            self._beat_at = time.monotonic() + BEAT_S

    def _hello(self, line: Line) -> Message:
        roster = self._roster
        address = local_address(line.sock)
        with roster.changed:
            roster.card = replace(roster.card, address=address, interface=interface_of(address), reached=self._peer)
            return {"lockstep": MAGIC, "card": roster.card.to_message(), "met": self._hub}

    def _take(self, message: Message, line: Line) -> None:
        """Put what node 0 says on the roster."""
        if str(message.get("lockstep")).startswith(FAMILY) and message["lockstep"] != MAGIC:
            self._roster.fail(trouble.other_version(local_address(line.sock)))
            line.ended = True
            return
        if message.get("lockstep") != MAGIC:
            raise NotOursError(repr(message)[:40])
        roster = self._roster
        if error := message["error"]:
            roster.fail(error_from(error))
        if "token" not in message:  # refused
            line.ended = True
            return
        self._heard_at = time.monotonic()
        if not self._known:
            roster.ahead_s = (self._asked + time.time()) / 2 - message["time_ns"] / 1e9
            self._beat_at = self._heard_at
            line.trust()
        self._known, self.last = True, None
        with roster.changed:
            roster.cards = {card["node"]: Card.from_message(card) for card in message["cards"]}
            roster.store = (message["store"][0], message["store"][1]) if message["store"] else None
            for name, one in message["heard"].items():
                if int(name) != roster.card.node:
                    roster.hear(int(name), Words.from_message(one["words"]), one["age"] or 0.0)
                if one["age"] is None and int(name) != roster.card.node:
                    roster.lose(int(name), gone=True)
            if message["met"]:
                # From now on the same address is tried, and no name is looked up.
                self._hub, self._host = message["token"], self._peer
                roster.met = True
            roster.changed.notify_all()

    def _lost(self) -> None:
        """Node 0 has closed the connection, or refuses a new one: its launcher has ended."""
        self._roster.lose(0)

    def _say_goodbye(self, line: Line) -> None:
        deadline = time.monotonic() + LINGER_S / 2
        with suppress(OSError):
            line.send(self._roster.mine.to_message())
            while line.busy and time.monotonic() < deadline:
                time.sleep(0.01)
                line.flush()
            line.sock.shutdown(socket.SHUT_WR)
