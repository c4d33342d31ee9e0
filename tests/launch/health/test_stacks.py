import pytest

from lockstep.launch.health import stacks
from lockstep.launch.health.check import Asked


@pytest.mark.parametrize(
    ("works", "scope", "capable", "must"),
    [
        (True, 1, False, ""),
        (False, 1, False, "sysctl kernel.yama.ptrace_scope=0 (it is 1)"),
        (False, 0, False, "--cap-add SYS_PTRACE"),
        (False, 0, True, "seccomp"),
    ],
)
def test_what_to_do(works: bool, scope: int, capable: bool, must: str) -> None:
    check = stacks.judge(works, scope, capable)
    assert check.status == ("ok" if works else "warn")
    assert must in check.advice


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_py_spy", lambda: None)
    assert stacks.checks(Asked())[0].advice.startswith("pip install py-spy")


def test_it_is_tried_on_a_real_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_py_spy", lambda: "false")
    assert stacks.checks(Asked())[0].status == "warn"
    monkeypatch.setattr(stacks, "_py_spy", lambda: "echo")
    assert stacks.checks(Asked())[0].status == "ok"
