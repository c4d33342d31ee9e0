import os

from lockstep.launch.health import node
from lockstep.launch.health.check import ORDER, Asked


def test_everything_is_looked_at_and_nothing_is_said_without_advice() -> None:
    checks = node.look(Asked(1, environ=dict(os.environ)))
    groups = list(dict.fromkeys(check.group for check in checks))
    wanted = ["versions", "GPUs", "CPU", "memory", "limits", "ports", "network", "clock", "disk", "stacks", "leftovers"]
    assert groups == wanted
    assert all(check.status in ORDER and check.seen for check in checks)
    assert all(check.advice for check in checks if check.status != "ok")


def test_what_must_be_equal_on_all_nodes() -> None:
    assert {"Python", "torch", "lockstep"} <= node.facts().keys()
