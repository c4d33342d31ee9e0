import os
import socket
from collections.abc import Iterator

import pytest

from lockstep.launch.nodes.wire import Line, NotOursError, own, plain


@pytest.fixture
def ends() -> Iterator[tuple[Line, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        line = Line(listener.accept()[0])
    yield line, here
    line.close()
    here.close()


def test_messages_come_whole_however_they_are_cut(ends: tuple[Line, socket.socket]) -> None:
    line, here = ends
    here.sendall(b'{"a": 1}\n{"b"')
    assert _receive(line) == [{"a": 1}]
    assert line.receive() == []
    here.sendall(b": 2}\n")
    assert _receive(line) == [{"b": 2}]
    here.close()
    while not line.ended:
        assert line.receive() == []


def test_a_reader_that_does_not_read_blocks_nobody(ends: tuple[Line, socket.socket]) -> None:
    line, here = ends
    line.send({"text": "x" * 20_000_000})
    assert line.busy
    got = 0
    while line.busy or got < 20_000_000:
        got += len(here.recv(1 << 20))
        line.flush()


@pytest.mark.parametrize("words", [b"SSH-2.0\r\n", b"\x00\x01", b"[1]\n", b"{broken\n"])
def test_another_language_is_known(ends: tuple[Line, socket.socket], words: bytes) -> None:
    line, here = ends
    here.sendall(words)
    with pytest.raises(NotOursError):
        _receive(line)


def test_a_forked_child_does_not_hold_the_connection() -> None:
    here, there = socket.socketpair()
    own(here)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # lives until the parent lets it go
        os._exit(0)
    here.close()
    there.settimeout(3)
    assert there.recv(1) == b"", "closed, though the child lives"
    os.close(write)
    os.close(read)
    os.waitpid(child, 0)
    there.close()


@pytest.mark.parametrize(
    ("given", "expected"), [("::ffff:10.0.0.1", "10.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1%eth0")]
)
def test_addresses_are_plain(given: str, expected: str) -> None:
    assert plain(given) == expected


def _receive(line: Line) -> list[dict[str, object]]:
    while not (messages := line.receive()):
        assert not line.ended
    return messages
