import os
import socket
import subprocess
import sys

import pytest

from lockstep.launch.earlier import procfs
from lockstep.launch.earlier.ports import Holder, age, listening, port_holder, ports_of, short


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_who_listens_is_named(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        holder = port_holder(port)
        assert holder is not None
        assert (holder.pid, holder.port) == (os.getpid(), port)
        assert str(holder).startswith(f"port {port} is in use by pid {os.getpid()}, ")
        me = procfs.look(os.getpid())
        assert me is not None
        assert port in ports_of(me)
    assert port_holder(port) is None


def test_another_process_is_named() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    command = [sys.executable, "-c", code, "holds-the-port"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        holder = port_holder(int(child.stdout.readline()))
        assert holder is not None
        assert holder.pid == child.pid
        assert holder.command.endswith("holds-the-port")
        child.kill()


def test_a_connection_is_no_listener() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as client:
        assert client.getsockname()[1] not in listening("self").values()


def test_another_users_is_not_named() -> None:
    assert str(Holder(29500)) == "port 29500 is in use by a process of another user or container"


def test_another_users_process_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert port_holder(port) == Holder(port)


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (119, "119 s"), (300, "5 min"), (7300, "2 h"), (86_400 * 3, "3 days")]
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_a_long_command_is_cut() -> None:
    assert short("python train.py") == "python train.py"
    assert len(short("x" * 500)) == 100
