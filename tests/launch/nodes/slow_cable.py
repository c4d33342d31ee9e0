"""A cable between two network namespaces that delays and loses packets, for kernels without `tc ... netem`.

Run as a program: it makes a TUN interface in each namespace and carries packets from one to the other until it is
killed. Usage: slow_cable.py HOST INTERFACE HOST INTERFACE DELAY_S LOSS
"""

import collections
import contextlib
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections.abc import Callable

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
_MOST_PACKETS = 4000  # under way in one direction; more are lost, as in a router

Packets = collections.deque[tuple[float, bytes]]


def tun(host: str, interface: str) -> int:
    """Make one end. Returns its file."""
    with open(f"/run/netns/{host}") as file:  # noqa: PTH123
        if ctypes.CDLL(None).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(f"setns {host}")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", interface.encode(), _IFF_TUN | _IFF_NO_PI))
    return end


def carry(ends: list[int], delay_s: float, loss: float) -> None:
    """Carry packets for ever."""
    chance = random.Random(1)
    under_way: list[Packets] = [collections.deque(), collections.deque()]
    while True:
        now = time.monotonic()
        dues_s = [packets[0][0] - now for packets in under_way if packets]
        ready, _, _ = select.select(ends, [], [], max(0.0, min(dues_s)) if dues_s else None)
        now = time.monotonic()
        for side, end in enumerate(ends):
            if end in ready:
                take(end, under_way[1 - side], now + delay_s, lambda: chance.random() < loss)
            give(end, under_way[side], now)


def take(end: int, packets: Packets, due: float, lost: Callable[[], bool]) -> None:
    """Take what one side sends."""
    with contextlib.suppress(OSError):  # nothing more, or the interface is down
        for _ in range(64):
            packet = os.read(end, 65536)
            if not lost() and len(packets) < _MOST_PACKETS:
                packets.append((due, packet))


def give(end: int, packets: Packets, now: float) -> None:
    """Deliver what is due."""
    while packets and packets[0][0] <= now:
        with contextlib.suppress(OSError):  # the interface is down: lost
            os.write(end, packets.popleft()[1])


if __name__ == "__main__":
    one, one_name, two, two_name, delay, share = sys.argv[1:]
    both = [tun(one, one_name), tun(two, two_name)]
    print("ready", flush=True)
    carry(both, float(delay), float(share))
