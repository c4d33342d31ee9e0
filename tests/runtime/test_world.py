"""Who am I among N: read from the environment, joined, left in every way out."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep.core.errors import RunError, UserError
from lockstep.runtime.world import Place, World, _bind, launched, num_cores, restarts
from tests.last_to_hold import threads_of_gloo
from tests.ranks import run_ranks

NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"]


def place(monkeypatch: pytest.MonkeyPatch, **values: str) -> Place:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return Place.from_environment()


def test_without_a_launcher_one_process_is_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place(monkeypatch) == Place(0, 1, 0, 1, 0, 1)
    assert not launched()
    assert place(monkeypatch, LOCAL_RANK="3") == Place()  # a leftover of another tool says nothing


def test_all_of_torchruns_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict(zip(NAMES, ("5", "8", "1", "4", "1", "2"), strict=True))
    assert place(monkeypatch, **given) == Place(5, 8, 1, 4, 1, 2)
    assert launched()


def test_what_is_not_given_follows_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place(monkeypatch, RANK="2", WORLD_SIZE="4") == Place(2, 4, 2, 4, 0, 1)
    assert place(monkeypatch, RANK="5", WORLD_SIZE="6", LOCAL_WORLD_SIZE="4") == Place(5, 6, 1, 4, 1, 2)


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ({"RANK": "0"}, "WORLD_SIZE is None"),
        ({"WORLD_SIZE": "2"}, "RANK is None"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is 'one'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is '-1'"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "RANK is ''"),
        ({"RANK": "²", "WORLD_SIZE": "3"}, "RANK is '²'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE is '0'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 of WORLD_SIZE=2"),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=2 of LOCAL_WORLD"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], seen: str
) -> None:
    with pytest.raises(UserError) as caught:
        place(monkeypatch, **values)
    assert seen in str(caught.value)
    assert "unset RANK and WORLD_SIZE" in str(caught.value)


def test_more_ranks_than_gpus_is_refused_before_a_gpu_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", bound.append)
    assert _bind(Place(5, 8, 1, 4), "auto") == torch.device("cuda", 1)  # by its place on the node, not its rank
    with pytest.raises(UserError, match=r"(?s)rank 6 needs GPU 2, torch sees 2.*run.device=cpu"):
        _bind(Place(6, 8, 2, 4), "auto")
    assert bound == [torch.device("cuda", 1)]
    assert _bind(Place(6, 8, 2, 4), "cpu") == torch.device("cpu")
    assert len(bound) == 1


def test_a_world_that_cannot_be_entered_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="torch sees 0"), World.enter(device="cuda", threads=threads + 1):
        raise AssertionError("not reached")
    assert torch.get_num_threads() == threads

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(dist, "init_process_group", refused)
    with pytest.raises(RuntimeError, match="no network"), World.enter(device="cpu", threads=threads + 1):
        raise AssertionError("not reached")
    assert torch.get_num_threads() == threads
    assert not dist.is_initialized()


def alone() -> dict[str, Any]:
    for name in NAMES:
        os.environ.pop(name, None)
    found: dict[str, Any] = {"before": torch.get_num_threads()}
    with World.enter(threads=2) as world:
        found["inside"] = torch.get_num_threads(), dist.is_initialized(), dist.get_backend()
        world.barrier()
        found["values"] = world.broadcast({"a": 1}), world.gather("x"), world.sum(torch.ones(2)).tolist()
        found["place"] = world.rank, world.num_ranks, world.is_main
        with world.rank0_first():
            found["first"] = True
    found["after"] = torch.get_num_threads(), dist.is_initialized()
    with World.enter(threads=1) as world:  # a second run in one process
        found["again"] = world.gather(1)
    return found


def test_one_process_is_a_world_of_one() -> None:
    (found,) = run_ranks(alone, 1)
    assert found["inside"] == (2, True, "gloo")
    assert found["values"] == ({"a": 1}, ["x"], [1.0, 1.0])
    assert found["place"] == (0, 1, True)
    assert found["after"] == (found["before"], False)
    assert found["again"] == [1]


def together(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with World.enter() as world:
        rank = world.rank
        found["who"] = rank, world.num_ranks, world.is_main, world.place.rank_of_node, world.place.node
        found["threads"] = torch.get_num_threads()
        found["broadcast"] = world.broadcast({"rank": rank, "text": "ä" * rank, "none": None})
        found["gather"] = world.gather({"rank": rank, "list": list(range(rank))})
        found["sum"] = world.sum(torch.tensor([rank, 1], dtype=torch.float64)).tolist()
        coming = torch.tensor([rank + 1])
        work = world.start_sum(coming)
        work.wait()
        found["start_sum"] = coming.tolist()
        with world.rank0_first():
            if rank == 0:
                time.sleep(0.2)
                (folder / "cache").write_text("made once")
            found["cache"] = (folder / "cache").read_text()
        if rank == 0:
            time.sleep(0.2)
            (folder / "late").touch()
        world.barrier()
        found["late"] = (folder / "late").exists()
    found["left"] = not dist.is_initialized()
    return found


def test_ranks_know_who_they_are_and_speak_to_each_other(tmp_path: Path) -> None:
    ranks = run_ranks(together, 3, tmp_path, ranks_per_node=2)
    assert [one["who"] for one in ranks] == [(0, 3, True, 0, 0), (1, 3, False, 1, 0), (2, 3, False, 0, 1)]
    assert [one["threads"] for one in ranks] == [max(1, num_cores() // 2)] * 2 + [num_cores()]
    for one in ranks:
        assert one["broadcast"] == {"rank": 0, "text": "", "none": None}
        assert one["gather"] == [{"rank": r, "list": list(range(r))} for r in range(3)]
        assert one["sum"] == [3.0, 3.0]
        assert one["start_sum"] == [6]
        assert one["cache"] == "made once"
        assert one["late"]
        assert one["left"]


def left_by_an_error(how: str) -> bool:
    threads = torch.get_num_threads()
    try:
        with World.enter(threads=threads + 1) as world:
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            model(torch.ones(1, 2)).sum().backward()
            if how == "in rank 0 first":
                with world.rank0_first():
                    raise KeyError(how)
            raise SystemExit(3) if how == "exit" else KeyError(how)
    except (KeyError, SystemExit, RunError):
        pass
    return not dist.is_initialized() and torch.get_num_threads() == threads


@pytest.mark.parametrize("how", ["error", "exit", "in rank 0 first"])
def test_the_group_is_left_in_every_way_out(how: str) -> None:
    assert run_ranks(left_by_an_error, 2, how) == [True, True]


def impatient() -> str:
    with World.enter(timeout_s=1.0) as world:
        if world.rank == 1:
            time.sleep(2.5)
            return "late"
        started = time.monotonic()
        try:
            world.barrier()
        except RuntimeError:
            return "gave up" if time.monotonic() - started < 2.3 else "waited too long"
        return "not alone"


def test_a_collective_that_the_others_do_not_join_fails_in_time() -> None:
    assert run_ranks(impatient, 2) == ["gave up", "late"]


def test_port_0_is_refused_instead_of_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="MASTER_PORT is 0"), World.enter(device="cpu"):
        pass


@pytest.mark.parametrize(("variables", "found"), [({}, (0, 0)), ({"COUNT": "1", "MAX": "3"}, (1, 3))])
def test_restarts_are_those_of_the_launcher(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: tuple[int, int]
) -> None:
    names = {"COUNT": "TORCHELASTIC_RESTART_COUNT", "MAX": "TORCHELASTIC_MAX_RESTARTS"}
    for short, name in names.items():
        monkeypatch.delenv(name, raising=False)
        if short in variables:
            monkeypatch.setenv(name, variables[short])
    assert restarts() == found


def outlived() -> int:
    def held() -> None:
        with World.enter(device="cpu"):
            model = DistributedDataParallel(torch.nn.Linear(2, 1))
            model(torch.ones(1, 2)).sum().backward()

    held()
    return threads_of_gloo()


def test_a_group_is_not_freed_by_the_model_that_outlives_it() -> None:
    assert run_ranks(outlived, 1)[0] > 0
