"""Node 0 looks where its own host name leads: to itself, to nothing, or to another node 0."""

import socket
import threading
import time

from lockstep.launch.nodes.roster import Roster, error_from
from lockstep.launch.nodes.wire import MAGIC, Line, NotOursError, own

_EVERY_S = 5.0
_TRY_S = 3.0


class Mirror(threading.Thread):
    """Only for what it finds: the name need not lead here, since the user says which node is node 0."""

    def __init__(self, roster: Roster, host: str, port: int) -> None:
        super().__init__(name="nodes mirror", daemon=True)
        self._roster, self._host, self._port = roster, host, port
        self._closing = threading.Event()
        self._found = ""

    def run(self) -> None:
        """Look now and then until all nodes are there, or itself was found."""
        while not self._closing.is_set() and not self._roster.met and not self._look():
            self._closing.wait(_EVERY_S)

    def said(self) -> str:
        """What was found, as the end of a sentence; "" if the name leads here."""
        return self._found

    def close(self) -> None:
        """End soon."""
        self._closing.set()

    def _look(self) -> bool:
        """Whether there is no need to look again."""
        try:
            with own(socket.create_connection((self._host, self._port), _TRY_S)) as sock:
                return self._ask(Line(sock))
        except (socket.gaierror, UnicodeError):
            self._found = f"; {self._host} does not resolve here"
        except OSError as error:
            self._found = f"; {self._host}:{self._port} does not lead here ({error.strerror or error})"
        return False

    def _ask(self, line: Line) -> bool:
        line.send({"lockstep": MAGIC, "card": self._roster.card.to_message(), "met": ""})
        deadline = time.monotonic() + _TRY_S
        try:
            while time.monotonic() < deadline and not line.ended:
                for message in line.receive():
                    if message.get("token") == self._roster.card.token:
                        self._found = ""
                        return True
                    if message.get("error"):
                        self._roster.fail(error_from(message["error"]))
                        return True
                time.sleep(0.02)
        except NotOursError as error:
            self._found = f"; at {self._host}:{self._port} another program answers: {error}"
        return False
