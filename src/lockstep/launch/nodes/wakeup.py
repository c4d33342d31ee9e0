"""A pipe that ends another thread's wait for the network."""

import socket
from contextlib import suppress

from lockstep.launch.nodes.wire import own


class Wakeup:
    """`wake` is called by any thread; the thread that waits selects on `sock` and calls `clear`."""

    def __init__(self) -> None:
        self.sock, self._other = socket.socketpair()
        for one in (self.sock, self._other):
            own(one).setblocking(False)

    def wake(self) -> None:
        """End the wait. A full pipe is as good as one byte."""
        with suppress(OSError):
            self._other.send(b"w")

    def clear(self) -> None:
        """Make ready for the next wait."""
        with suppress(OSError):
            while self.sock.recv(4096):
                pass

    def close(self) -> None:
        """Both ends."""
        self.sock.close()
        self._other.close()
