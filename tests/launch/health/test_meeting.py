import os
import socket

from lockstep.launch.health import meeting
from lockstep.launch.health.check import Asked
from lockstep.launch.nodes import DEFAULT_PORT, Nodes

RANGE = (32768, 60999)


def test_a_port_in_use_names_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check = meeting.stated(Asked(environ={"MASTER_PORT": str(port)}), RANGE)
        assert (check.status, check.name) == ("warn", f"MASTER_PORT {port}")
        assert f"pid {os.getpid()}" in check.seen
        assert meeting.stated(Asked(nodes=Nodes(2, 0, "", port)), RANGE).status == "fail"
        elsewhere = meeting.stated(Asked(nodes=Nodes(2, 1, "a", port)), (1, 2))
        assert (elsewhere.status, elsewhere.seen) == ("ok", "node 0 hosts the meeting")


def test_a_port_of_the_range_for_outgoing_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    check = meeting.stated(Asked(environ={"MASTER_PORT": str(port)}), (port, port))
    assert check.status == "warn"
    assert check.advice.startswith(f"take one below {port}")
    assert meeting.stated(Asked(environ={"MASTER_PORT": str(port)}), (1, 2)).status == "ok"


def test_no_port() -> None:
    for text in ("0", "65536", "x"):
        assert meeting.stated(Asked(environ={"MASTER_PORT": text}), RANGE).status == "fail"


def test_the_port_where_none_is_named() -> None:
    assert meeting.stated(Asked(), RANGE).name == "port 29500"
    assert meeting.stated(Asked(nodes=Nodes(2, 1)), RANGE).name == f"port {DEFAULT_PORT}"


def test_this_machine() -> None:
    assert meeting.checks(Asked())[0].status == "ok"
