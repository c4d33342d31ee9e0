"""One JSON object a line over a TCP connection, without ever blocking."""

import json
import os
import socket
import weakref
from contextlib import suppress
from typing import Any

FAMILY = "lockstep-nodes-"
MAGIC = FAMILY + "1"
"""In the first message of either side: whoever does not say it is another program, or another version of this one."""
_CHUNK = 1 << 16
_LONGEST = 1 << 26
_LONGEST_HELLO = 1 << 20

Message = dict[str, Any]

_open: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def own(sock: socket.socket) -> socket.socket:
    """Keep a socket out of forked children: one that outlives this process would hold the port or the connection."""
    _open.add(sock)
    return sock


def _close_all() -> None:
    for sock in list(_open):
        sock.close()


os.register_at_fork(after_in_child=_close_all)


class NotOursError(Exception):
    """The other side does not speak this language. Its text shows how it began."""


class Line:
    """Messages over one connection.

    ended: whether the other side has closed it, or it broke. longest: of a message, in bytes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = own(sock)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False
        self.longest = _LONGEST_HELLO
        self._out = b""
        self._in = b""

    def trust(self) -> None:
        """Take long messages from now on: the other side has said who it is."""
        self.longest = _LONGEST

    @property
    def busy(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._out) and not self.ended

    def send(self, message: Message) -> None:
        """Send a message, now or when `flush` is called later."""
        self._out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what the connection takes at this moment."""
        try:
            while self._out and not self.ended:
                self._out = self._out[self.sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def receive(self) -> list[Message]:
        """The messages that have come since.

        Raises:
            NotOursError: what came is not a line of JSON.
        """
        try:
            while chunk := self.sock.recv(_CHUNK):
                self._in += chunk
                if len(self._in) > self.longest:
                    raise NotOursError(_show(self._in))
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        *lines, self._in = self._in.split(b"\n")
        if self._in and not self._in.startswith(b"{"):
            raise NotOursError(_show(self._in))
        return [_parse(line) for line in lines]

    def close(self) -> None:
        """Close the connection; what was sent still arrives."""
        self.ended = True
        with suppress(OSError):
            self.sock.close()


def _parse(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise NotOursError(_show(line))
    return message


def _show(text: bytes) -> str:
    return repr(text[:40].decode(errors="backslashreplace"))


def plain(address: str) -> str:
    """An address without what IPv6 sockets add: `::ffff:10.0.0.1` is 10.0.0.1, `fe80::1%eth0` keeps its scope."""
    return address.removeprefix("::ffff:") if "." in address else address


def local_address(sock: socket.socket) -> str:
    """This side's address of a connection."""
    return plain(str(sock.getsockname()[0]))


def peer_address(sock: socket.socket) -> str:
    """The other side's address of a connection."""
    return plain(str(sock.getpeername()[0]))
