import errno
import os
import socket

import pytest

from lockstep.launch.nodes import trouble
from lockstep.launch.nodes.trouble import Try


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name"),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), "refused"),
        (TimeoutError("timed out"), "silent"),
        (OSError(errno.EHOSTUNREACH, ""), "route"),
        (OSError(errno.ENETUNREACH, ""), "route"),
        (ConnectionResetError(errno.ECONNRESET, ""), "closed"),
        (OSError(errno.EMFILE, ""), "other"),
    ],
)
def test_errors_are_told_apart(error: OSError, kind: str) -> None:
    assert trouble.kind_of(error) == kind


def test_what_was_tried_is_in_the_message() -> None:
    said = str(trouble.not_reached(1, "gpu-a", 29415, 300, Try("refused", "192.0.2.7", "Connection refused")))
    for words in ("gpu-a:29415 (192.0.2.7)", "within 300 s", "nothing listens on that port", "node 1", "--node-rank 0"):
        assert words in said
    assert "does not resolve" in str(trouble.not_reached(1, "gpu-a", 29415, 300, Try("name")))


def test_a_loopback_address_is_suspected() -> None:
    said = str(trouble.not_reached(1, "gpu-a", 29415, 300, Try("refused", "127.0.1.1")))
    assert "gpu-a is this machine itself" in said and "/etc/hosts" in said and "by lo from 127.0.0.1" in said


def test_the_holder_of_a_port_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert f"pid {os.getpid()} of" in trouble.holder(listener.getsockname()[1])
    assert "may not see" in trouble.holder(1)
