"""`run_ranks` gives real ranks, and one readable error whatever happens to one of them."""

import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

import pytest

from tests.ranks import run_ranks


def identity(*args: Any) -> Any:
    return args


def environment() -> dict[str, str]:
    return dict(os.environ)


def summed(value: float) -> Any:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([value + dist.get_rank()], dtype=torch.float64)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total, torch.get_num_threads()


def misbehave(how: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        if how == "raise":
            raise ZeroDivisionError("rank one divides")
        if how == "exit":
            sys.exit(7)
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "warn":
            warnings.warn("rank one warns", UserWarning, stacklevel=1)
        if how == "hang":
            threading.Event().wait()
    if how != "leave alive":
        dist.barrier()
        dist.destroy_process_group()


def wait_for(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_ranks_join_a_group_and_return_in_order(num_ranks: int) -> None:
    results = run_ranks(summed, num_ranks, 1.0)
    assert [threads for _, threads in results] == [1] * num_ranks
    expected = num_ranks + sum(range(num_ranks))
    assert [total.item() for total, _ in results] == [expected] * num_ranks


def test_ranks_see_torchruns_environment() -> None:
    seen = run_ranks(environment, 3, ranks_per_node=2, env={"EXTRA": "yes"})
    assert [env["RANK"] for env in seen] == ["0", "1", "2"]
    assert [env["LOCAL_RANK"] for env in seen] == ["0", "1", "0"]
    assert [env["LOCAL_WORLD_SIZE"] for env in seen] == ["2", "2", "1"]
    assert [env["GROUP_RANK"] for env in seen] == ["0", "0", "1"]
    assert {env["WORLD_SIZE"] for env in seen} == {"3"}
    assert len({env["MASTER_PORT"] for env in seen}) == 1
    assert {env["EXTRA"] for env in seen} == {"yes"}


def test_ranks_see_this_tests_environment_and_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("OF_THIS_TEST", "1")
    monkeypatch.chdir(tmp_path)
    assert run_ranks(environment, 1)[0]["OF_THIS_TEST"] == "1"
    assert run_ranks(os.getcwd, 1) == [str(tmp_path)]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "rank one divides"),
        ("exit", "SystemExit: 7"),
        ("die", "killed by SIGKILL"),
        ("warn", "rank one warns"),
    ],
)
def test_a_failing_rank_is_the_first_one_named(how: str, said: str) -> None:
    with pytest.raises(AssertionError, match=r"first: rank 1") as caught:
        run_ranks(misbehave, 2, how)
    assert said in str(caught.value)


def test_a_hung_rank_ends_with_its_stack() -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="still running after 2 s") as caught:
        run_ranks(misbehave, 2, "hang", timeout_s=2)
    assert time.monotonic() - began < 8
    assert "in misbehave" in str(caught.value)


def test_a_rank_may_not_leave_its_group_alive() -> None:
    with pytest.raises(AssertionError, match="left its process group alive"):
        run_ranks(misbehave, 2, "leave alive")


def test_a_launch_costs_a_fraction_of_a_second() -> None:
    run_ranks(identity, 1)  # the fork server is up
    began = time.monotonic()
    run_ranks(identity, 2)
    assert time.monotonic() - began < 2  # 0.1 s on a quiet machine


def test_arguments_and_results_are_copied() -> None:
    import torch

    weights = torch.arange(3.0)
    assert torch.equal(run_ranks(identity, 1, weights)[0][0], weights)
