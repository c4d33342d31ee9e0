import torch

from lockstep.launch.health import versions
from lockstep.launch.health.check import Asked


def test_this_installation() -> None:
    found = versions.facts()
    assert found["torch"] == torch.__version__
    assert "CUDA" not in found
    (check,) = versions.checks(Asked())
    assert check.status == "ok"
    assert f"torch {torch.__version__}" in check.seen


def test_an_old_torch_fails() -> None:
    (check,) = versions.judge({"torch": "2.8.1+cu121"}, distributed=True)
    assert (check.status, check.advice) == ("fail", "install torch 2.9 or later")
    assert versions.judge({"torch": "2.10.0a0+git1"}, distributed=True)[0].status == "ok"


def test_a_torch_without_distributed_fails() -> None:
    assert versions.judge({"torch": "2.13.0"}, distributed=False)[0].status == "fail"
