"""A run that is asked to stop at any moment and goes on later is the run that nobody disturbed."""

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.runtime.stopping import Agreement, stop_signals
from lockstep.runtime.training import Summary, fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of

OPTIONS: dict[str, Any] = {"dropout": 0.3, "noise": 0.3, "batchnorm": True, "branches": True, "val": 10}
RUN = ["precision=fp32", "stop.epochs=2", "batch.global_batch=8", "batch.accumulation=2", "optim.clip_norm=0.5"]
RUN += ["schedule.warmup_steps=3", "best.metric=val/miou", "run.threads=1", "log.every_steps=3", "batch.eval=2"]
RUN += ["evaluate.every_steps=4", "checkpoint.every_steps=5"]
SECONDS = ("samples_per_s", "data_share", "comm_share", "memory_mib")


class Request:
    """Comes to one rank, when it looks for the n-th time whether there is one; never where n is None."""

    def __init__(self, world: World, rank: int, n: int | None) -> None:
        self.n = n if rank == world.rank else None
        self.looked = 0

    def __call__(self) -> bool:
        self.looked += 1
        return self.n is not None and self.looked > self.n


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in SECONDS} for line in lines]


def ended(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def chain(folder: Path, options: dict[str, Any], overrides: list[str], seed: int) -> list[tuple[str, int, int]]:
    """An unbroken run, then one that is asked to stop again and again at moments drawn from the seed."""
    ends = []
    with World.enter(threads=1) as world:
        config = config_of(*overrides)
        request = Request(world, 0, None)
        fit(Segment(**options), config, world, folder / "whole", stop_asked=request)
        draw, total = random.Random(seed), max(world.gather(request.looked))
        moments: list[int | None] = [0, *(draw.randrange(1, total // 3) for _ in range(4))]
        while not ends or ends[-1][0] == "preempted":
            request = Request(world, draw.randrange(world.num_ranks), moments.pop(0) if moments else None)
            summary = fit(Segment(**options), config, world, folder / "cut", bool(ends), stop_asked=request)
            ends.append((summary.ending, summary.step, summary.epoch))
            world.barrier()
    return ends


def check_chain(folder: Path, ends: list[Any]) -> None:
    assert all(end == ends[0] for end in ends), "the ranks end differently"
    assert ends[0][0] == ("preempted", 0, 0)
    assert [ending for ending, *_ in ends[0]].count("preempted") >= 3
    assert ends[0][-1][0] == "done"
    whole, cut = folder / "whole", folder / "cut"
    assert records(cut) == records(whole)
    assert ended(cut)["weights_digest"] == ended(whole)["weights_digest"]
    assert ended(cut)["end"]["results"] == ended(whole)["end"]["results"] != {}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "extra",
    [
        ["checkpoint.every_steps=1"],  # asked while the save of the step before is still being written
        ["parallel.find_unused=on", "batch.accumulation=1"],
        ["data.workers=1", "precision=bf16"],
    ],
    ids=["saves", "counts", "workers"],
)
def test_asked_to_stop_at_any_moment(tmp_path: Path, num_ranks: int, extra: list[str]) -> None:
    ends = run_ranks(chain, num_ranks, tmp_path, OPTIONS, RUN + extra, random.randrange(10**6), timeout_s=200)
    check_chain(tmp_path, ends)


def every_moment(folder: Path) -> list[tuple[int, bool]]:
    """One short run, asked to stop at each moment at which it looks: steps, micro-steps, batches of evaluations."""
    found = []
    with World.enter(threads=1) as world:
        config = config_of(*RUN, "stop.epochs=1", "batch.global_batch=26", "evaluate.every_steps=1")
        request = Request(world, 0, None)
        fit(Segment(**OPTIONS), config, world, folder / "whole", stop_asked=request)
        for moment in range(request.looked):
            cut, request = folder / str(moment), Request(world, 0, moment)
            first = fit(Segment(**OPTIONS), config, world, cut, stop_asked=request)
            if first.ending == "preempted":
                fit(Segment(**OPTIONS), config, world, cut, True)
            same = [look(folder / "whole") == look(cut) for look in (records, digest)]
            found.append((first.step, all(same)))
    return found


def digest(folder: Path) -> str:
    return str(ended(folder)["weights_digest"])


def test_asked_to_stop_at_every_moment(tmp_path: Path) -> None:
    (found,) = run_ranks(every_moment, 1, tmp_path, timeout_s=200)
    assert [same for _, same in found] == [True] * len(found)
    assert {step for step, _ in found} == {0, 1, 2}


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_stream_that_is_asked_to_stop(tmp_path: Path, num_ranks: int) -> None:
    options = {**OPTIONS, "stream": True}
    overrides = [*RUN, "schedule.name=constant", "schedule.warmup_steps=0"]
    check_chain(tmp_path, run_ranks(chain, num_ranks, tmp_path, options, overrides, 3, timeout_s=200))


def late(folder: Path) -> Summary:
    """Asked when all is done but the end: it ends as it would have."""
    with World.enter(threads=1) as world:
        steps: list[int] = []
        config = config_of(*RUN, "best.metric=null", "evaluate.every_epochs=null", "stop.max_steps=5")
        fit(Segment(**OPTIONS), config, world, folder, on_step=steps.append)
        return fit(Segment(**OPTIONS), config, world, folder, True, stop_asked=lambda: True)


def test_a_run_that_has_nothing_left_to_do_is_not_preempted(tmp_path: Path) -> None:
    (summary,) = run_ranks(late, 1, tmp_path)
    assert (summary.ending, summary.step) == ("stopped", 5)


def answers(asked_at: int) -> list[bool]:
    with World.enter(threads=1) as world:
        looked = iter(range(100))
        agreement = Agreement(world, lambda: world.rank == 1 and next(looked) >= asked_at)
        found = [agreement.stop() for _ in range(8)]
        agreement.close()
        world.barrier()
    return found


def test_an_answer_is_the_same_on_every_rank_and_a_little_late() -> None:
    ranks = run_ranks(answers, 3, 2)
    assert ranks[0] == ranks[1] == ranks[2] == [False] * (2 + Agreement.LAG) + [True] * (6 - Agreement.LAG)


def ahead_of_a_slow_rank() -> float:
    with World.enter(threads=1) as world:
        world.barrier()
        agreement, start = Agreement(world, lambda: False), time.monotonic()
        if world.rank == 1:
            time.sleep(1.0)
        for _ in range(Agreement.LAG):
            agreement.stop()
        spent = time.monotonic() - start
        agreement.close()
    return spent


def test_a_rank_may_run_ahead_of_a_slow_one() -> None:
    fast, slow = run_ranks(ahead_of_a_slow_rank, 2)
    assert fast < 0.5 < slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_noted_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as asked:
        assert not asked()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert asked()
    assert signal.getsignal(number) == before


def test_outside_the_main_thread_handlers_stay_as_they_are() -> None:
    found: list[Any] = []

    def enter() -> None:
        with stop_signals() as asked:
            found.append((signal.getsignal(signal.SIGTERM), asked()))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [(signal.getsignal(signal.SIGTERM), False)]
