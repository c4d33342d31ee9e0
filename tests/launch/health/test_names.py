import socket
import threading

import pytest

from lockstep.launch.health import names
from lockstep.launch.health.check import Asked
from lockstep.launch.nodes import Nodes

TWO = Asked(nodes=Nodes(2))
OWN = {"127.0.0.1", "10.0.0.5"}


@pytest.mark.parametrize(
    ("found", "took_s", "status", "must"),
    [
        (["10.0.0.5"], 0.1, "ok", "`a` resolves to 10.0.0.5"),
        (["127.0.1.1"], 0.1, "warn", "which only this machine can reach"),
        (["::1", "127.0.0.1"], 0.1, "warn", "which only this machine can reach"),
        (["10.0.0.9"], 0.1, "warn", "none of them of this machine"),
        ([], 0.1, "warn", "does not resolve"),
        (None, 5.0, "warn", "not resolved in 5 s"),
        (["10.0.0.5"], 3.0, "warn", "after 3.0 s"),
    ],
)
def test_on_several_machines(found: list[str] | None, took_s: float, status: str, must: str) -> None:
    check = names.judge(TWO, "a", found, took_s, OWN)
    assert check.status == status
    assert must in check.seen
    assert bool(check.advice) == (status == "warn")


def test_on_one_machine_and_with_a_stated_interface_no_name_is_needed() -> None:
    alone = names.judge(Asked(), "a", ["127.0.1.1"], 0.1, OWN)
    assert (alone.status, alone.advice) == ("ok", "")
    stated = Asked(nodes=Nodes(2), environ={"GLOO_SOCKET_IFNAME": "eth0"})
    assert names.judge(stated, "a", ["127.0.1.1"], 0.1, OWN).status == "ok"


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: answer.wait(30) and [])
    assert names.resolve("a", patience_s=0.1) is None
    answer.set()


def test_names_of_this_machine() -> None:
    assert "127.0.0.1" in (names.resolve("localhost") or [])
    assert names.resolve("no-such-host.invalid", patience_s=20) in ([], None)
    assert "127.0.0.1" in names.own_addresses()
    assert len(names.checks(Asked())) == 1
