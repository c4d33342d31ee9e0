import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.launch.nodes.conftest import StartPeer
from tests.launch.nodes.two_hosts import TwoHosts


@contextmanager
def server(port: int, behave: Callable[[socket.socket], None]) -> Iterator[None]:
    """Another program that listens."""
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        with suppress(OSError):
            while True:
                behave(listener.accept()[0])

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def banner(client: socket.socket) -> None:
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    client.close()


def web(client: socket.socket) -> None:
    client.recv(1000)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    client.close()


def json_of_another_kind(client: socket.socket) -> None:
    client.sendall(b'{"error": null}\n')
    client.close()


@pytest.mark.parametrize(
    ("behave", "words"), [(banner, "SSH-2.0"), (web, "HTTP/1.1 400"), (json_of_another_kind, "error")]
)
def test_another_program_is_known_by_its_answer(
    peer: StartPeer, port: int, behave: Callable[[socket.socket], None], words: str
) -> None:
    with server(port, behave):
        said = peer(1, port=port).error()
    assert f"127.0.0.1:{port}: another program listens there" in said and words in said


@pytest.mark.slow
def test_a_program_that_says_nothing_is_not_waited_for_long(peer: StartPeer, port: int) -> None:
    kept = []
    with server(port, kept.append):
        assert "said nothing for 10 s" in peer(1, port=port, wait_s=60.0).error(30)
    for one in kept:
        one.close()


def test_a_program_that_closes_at_once_may_be_a_forwarded_port(peer: StartPeer, port: int) -> None:
    with server(port, lambda client: client.close()):
        one = peer(1, port=port)
        time.sleep(1.5)
    zero = peer(0, port=port)
    assert one.met() and zero.met()
    with server(port + 1, lambda client: client.close()):
        assert "accepted and closed at once" in peer(1, port=port + 1, wait_s=1.5).error()


def test_nobody_there_is_told_from_no_name_and_no_route(peer: StartPeer, hosts: TwoHosts) -> None:
    tries = {
        "connection refused: a machine answers there": hosts.addresses[0],
        "this name does not resolve here": "gpu-a.invalid",
        "no route": "10.99.0.1",
    }
    started = {
        words: (host, peer(1, host, 29999, wait_s=1.5, before=hosts.entering(1))) for words, host in tries.items()
    }
    for words, (host, one) in started.items():
        said = one.error()
        assert words in said and f"node 0 was not reached at {host}:29999 within 1.5 s" in said, said
        if host == hosts.addresses[0]:
            assert f"by {hosts.interfaces[1]} from {hosts.addresses[1]}" in said


@pytest.mark.slow
def test_packets_that_get_lost_are_no_refusal(peer: StartPeer, hosts: TwoHosts) -> None:
    hosts.run(
        1, "ip", "neighbour", "replace", hosts.addresses[0], "lladdr", "02:00:00:00:00:01", "dev", hosts.interfaces[1]
    )
    said = peer(1, hosts.addresses[0], wait_s=5.0, before=hosts.entering(1)).error()
    assert "no answer: packets to that address get lost" in said and "firewall" in said


def test_a_loopback_name_is_pointed_at(peer: StartPeer, port: int) -> None:
    assert "this machine itself" in peer(1, "localhost", port, wait_s=1.0).error()
