"""A run comes back as it was; what the config changed since comes from the config; a misfit is explained."""

import copy
import logging
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lockstep.runtime.state.writer as writer_module
from lockstep.core.errors import RunError, UserError
from lockstep.runtime.config import CheckpointConfig, OptimConfig, ScheduleConfig
from lockstep.runtime.optim import build_optimizer, build_schedule
from lockstep.runtime.state.checkpoint import Checkpoint, Snapshot, name_of, read, write
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.saver import Saver, State, find_checkpoint
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.state.snapshots import flip, names, written
from tests.runtime.state.test_writer import FixedState


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these small models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


COSINE = ScheduleConfig(name="cosine", warmup_steps=3)


class Run:
    """Model, optimizer and schedule, trained on fixed numbers."""

    def __init__(
        self,
        seed: int = 0,
        optim: OptimConfig | None = None,
        schedule: ScheduleConfig = COSINE,
        total: int = 20,
        hidden: int = 5,
        fp16: bool = False,
    ) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Conv2d(2, hidden, 1), nn.BatchNorm2d(hidden), nn.Conv2d(hidden, 1, 3))
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optim = optim or OptimConfig(lr=0.05)
        self.optimizer = build_optimizer(self.model, self.optim, self.optim.lr)
        self.schedule = build_schedule(self.optimizer, schedule, total, 1.0)
        self.scaler = torch.amp.GradScaler("cpu", enabled=fp16, init_scale=8.0, growth_interval=2)
        self.state = State(self.model, self.optimizer, self.schedule, self.scaler)

    def train(self, steps: range) -> list[float]:
        """The learning rate of each step."""
        rates = []
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            x = torch.rand(2, 2, 4, 4, generator=generator, dtype=torch.float32)
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(x).square().mean()).backward()
            rates.append(self.optimizer.param_groups[0]["lr"])
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
        return rates

    def bits(self) -> list[Any]:
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.state_dict().values(), *(m for m in moments if m is not None)]


def same(one: Run, other: Run) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.bits(), other.bits(), strict=True))


def saved(run: Run, folder: Path, step: int = 7) -> Checkpoint:
    return read(write(folder, run.state.snapshot(Position(step=step, epoch=1), {})))


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("shape", ["constant", "cosine", "linear", "poly", "step"])
def test_a_restored_run_goes_on_bit_by_bit(tmp_path: Path, name: Any, shape: Any) -> None:
    settings = {"optim": OptimConfig(name=name, lr=0.05), "schedule": ScheduleConfig(name=shape, warmup_steps=4)}
    whole = Run(**settings)  # type: ignore[arg-type]
    rates = whole.train(range(12))
    cut = Run(**settings)  # type: ignore[arg-type]
    first = cut.train(range(7))
    resumed = Run(seed=1, **settings)  # type: ignore[arg-type]
    position = resumed.state.restore(saved(cut, tmp_path))
    assert position == Position(step=7, epoch=1)
    assert first + resumed.train(range(7, 12)) == rates
    assert same(whole, resumed)


def test_the_scaler_goes_on_too(tmp_path: Path) -> None:
    cut = Run(fp16=True)
    cut.train(range(5))
    assert cut.scaler.get_scale() == 32.0
    resumed = Run(fp16=True)
    resumed.state.restore(saved(cut, tmp_path))
    assert resumed.scaler.state_dict() == cut.scaler.state_dict()


def test_a_loop_without_schedule_and_scaler_keeps_its_own_rate(tmp_path: Path) -> None:
    def made(rate: float) -> State:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return State(model, optimizer)

    cut, resumed = made(0.1), made(0.2)
    assert resumed.restore(read(write(tmp_path, cut.snapshot(Position(step=1), {})))) == Position(step=1)
    assert resumed.optimizer.param_groups[0]["lr"] == 0.2
    assert torch.equal(resumed.model.state_dict()["weight"], cut.model.state_dict()["weight"])


def test_moments_lie_as_their_parameters_do(tmp_path: Path) -> None:
    cut = Run()
    cut.train(range(2))
    resumed = Run()
    resumed.state.restore(saved(cut, tmp_path))
    layouts = [(p.stride(), s["exp_avg"].stride()) for p, s in resumed.optimizer.state.items()]
    assert all(one == other for one, other in layouts)
    assert any(p.dim() == 4 and not p.is_contiguous() for p in resumed.optimizer.state)


def test_a_snapshot_does_not_follow_the_training(tmp_path: Path) -> None:
    run = Run()
    run.train(range(3))
    shot = run.state.snapshot(Position(step=3), {})
    kept = copy.deepcopy(shot)
    run.train(range(3, 6))
    assert all(torch.equal(value, kept.tensors[name]) for name, value in shot.tensors.items())
    moments = [shot.trainer["optimizer"]["state"][0], kept.trainer["optimizer"]["state"][0]]
    assert torch.equal(moments[0]["exp_avg"], moments[1]["exp_avg"])
    assert shot.trainer["schedule"] == kept.trainer["schedule"]


CHANGES = {
    "a larger rate": {"optim": OptimConfig(lr=0.5)},
    "more epochs": {"total": 60},
    "another shape": {"schedule": ScheduleConfig(name="poly", warmup_steps=3)},
    "another warm-up": {"schedule": ScheduleConfig(name="cosine", warmup_steps=5)},
    "no warm-up": {"schedule": ScheduleConfig(name="cosine")},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_rate_or_schedule_is_that_of_the_new_config(tmp_path: Path, change: dict[str, Any]) -> None:
    """The rate of each step to come is what it would be had the run begun with these settings."""
    fresh = Run(**change).train(range(12))
    cut = Run()
    cut.train(range(7))
    resumed = Run(**change)
    resumed.state.restore(saved(cut, tmp_path))
    assert resumed.train(range(7, 12)) == fresh[7:]


def test_a_changed_setting_of_the_optimizer_is_that_of_the_new_config(tmp_path: Path) -> None:
    cut = Run()
    cut.train(range(3))
    resumed = Run(optim=OptimConfig(lr=0.05, weight_decay=0.5, betas=(0.5, 0.6), fused=False))
    resumed.state.restore(saved(cut, tmp_path))
    (group,) = resumed.optimizer.param_groups
    assert (group["weight_decay"], group["betas"], group["fused"]) == (0.5, (0.5, 0.6), None)
    assert group["lr"] == cut.optimizer.param_groups[0]["lr"]
    moments = [next(iter(run.optimizer.state.values()))["exp_avg"] for run in (cut, resumed)]
    assert torch.equal(*moments)
    resumed.train(range(3, 5))


def test_another_optimizer_is_explained(tmp_path: Path) -> None:
    cut = Run(optim=OptimConfig(name="sgd"))
    cut.train(range(2))
    with pytest.raises(UserError, match=r"saved with another optimizer than AdamW") as caught:
        Run().state.restore(saved(cut, tmp_path))
    assert "Where: optim, schedule" in str(caught.value)


def test_another_architecture_is_explained(tmp_path: Path) -> None:
    cut = Run(hidden=6)
    with pytest.raises(UserError, match=r"step-00000007 is of another architecture"):
        Run().state.restore(saved(cut, tmp_path))


# ---- finding ----


def found_by_all(folder: Path) -> tuple[str, float, list[str]]:
    """Every rank reads what rank 0 has chosen, and who says what."""
    said: list[str] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Said()
    logging.getLogger("lockstep").addHandler(handler)
    with World.enter(threads=1) as world:
        found = find_checkpoint(folder / "one damaged", world)
        for name in ("none", "all damaged", "not there"):
            with pytest.raises(UserError, match=f"no whole checkpoint in {folder / name}"):
                find_checkpoint(folder / name, world)
    logging.getLogger("lockstep").removeHandler(handler)
    return found.path.name, float(found.tensors["net.bias"][0]), said


def test_every_rank_finds_the_newest_whole_one_and_rank_0_says_what_it_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    for path in [written(tmp_path / "one damaged", 1, 2, 3)[-1], *written(tmp_path / "all damaged", 7)]:
        flip(path / "model.safetensors", 300, 1)
    main, other = run_ranks(found_by_all, 2, tmp_path)
    assert main[:2] == other[:2] == (name_of(2), 2.0)
    assert other[2] == []
    damaged = tmp_path / "one damaged" / name_of(3) / "model.safetensors"
    assert main[2][0] == f"checkpoint refused: {damaged} differs from what was written (SHA-256)"
    assert main[2][1] == f"the one before is used: {tmp_path / 'one damaged' / name_of(2)}"
    assert len(main[2]) == 3  # and the one that is damaged with none before it


# ---- saving ----


def saver(folder: Path, acts: bool = True, **config: Any) -> Saver:
    return Saver(folder, CheckpointConfig(**config), {"num_ranks": 2}, acts)


def save(keeper: Saver, step: int, best_step: int | None = None) -> None:
    position = Position(step=step, epoch=step // 2, best=0.5 if best_step else None, best_step=best_step)
    keeper.save(FixedState(float(step)), position)  # type: ignore[arg-type]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_last_k_and_the_best_are_kept(tmp_path: Path, asynchronous: bool) -> None:
    keeper = saver(tmp_path, keep_last=2, asynchronous=asynchronous)
    for step in range(1, 7):
        save(keeper, step, best_step=min(step, 3))
    keeper.close(ending_well=True)
    assert names(tmp_path) == ["best", name_of(3), name_of(5), name_of(6)]
    manifest = read(tmp_path / "best").manifest
    assert (manifest["step"], manifest["epoch"], manifest["best"], manifest["num_ranks"]) == (3, 1, 0.5, 2)


def test_the_best_is_not_kept_where_nobody_asks_for_it(tmp_path: Path) -> None:
    keeper = saver(tmp_path, keep_last=1, keep_best=False)
    for step in (1, 2, 3):
        save(keeper, step, best_step=1)
    keeper.close(ending_well=True)
    assert names(tmp_path) == [name_of(3)]


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    keeper = saver(tmp_path, acts=False)
    save(keeper, 1)
    assert keeper.saved == Position(step=1)
    keeper.close(ending_well=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_each_checkpoint_holds_its_own_moment_though_memory_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    def slow(folder: Path, shot: Snapshot, fellows: object = None) -> Path:
        time.sleep(delay_s)
        return write(folder, shot)

    monkeypatch.setattr(writer_module, "write", slow)
    run, keeper, moments = Run(), saver(tmp_path, keep_last=20), []
    for step in range(1, 9):
        run.train(range(step - 1, step))
        moments.append(copy.deepcopy(run.bits()))
        keeper.save(run.state, Position(step=step))
    keeper.close(ending_well=True)
    for step, moment in enumerate(moments, 1):
        restored = Run(seed=1)
        restored.state.restore(read(tmp_path / name_of(step)))
        assert all(torch.equal(a, b) for a, b in zip(restored.bits(), moment, strict=True)), step


def full(*_: Any) -> Path:
    raise OSError(28, "No space left on device")


def test_a_failed_save_is_told_at_once_and_a_later_one_makes_up_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = saver(tmp_path, asynchronous=False)
    save(keeper, 1)
    monkeypatch.setattr(writer_module, "write", full)
    save(keeper, 2)
    assert "checkpoint of step 2 was not saved: [Errno 28] No space left on device" in caplog.text
    assert "the last good one is step-00000001; training goes on" in caplog.text
    monkeypatch.undo()
    save(keeper, 3)
    keeper.close(ending_well=True)


def test_a_run_whose_last_state_is_lost_does_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = saver(tmp_path)
    save(keeper, 1)
    keeper.close(ending_well=True)
    monkeypatch.setattr(writer_module, "write", full)
    save(keeper, 2)
    with pytest.raises(RunError, match=r"the last checkpoint \(step 2\) could not be saved") as caught:
        keeper.close(ending_well=True)
    assert "free the disk, then resume" in str(caught.value)
    save(keeper, 3)
    keeper.close(ending_well=False)  # another error is on its way, which this one must not hide


def test_what_cannot_be_deleted_is_told_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("busy")

    monkeypatch.setattr("lockstep.runtime.state.saver.prune", fail)
    keeper = saver(tmp_path)
    save(keeper, 1)
    keeper.close(ending_well=True)
    assert "older ones could not be deleted: busy" in caplog.text


def test_the_stall_is_the_copy_and_not_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()

    def slow(folder: Path, shot: Snapshot, fellows: object = None) -> Path:
        assert opened.wait(10)
        return write(folder, shot)

    monkeypatch.setattr(writer_module, "write", slow)
    keeper = saver(tmp_path)
    save(keeper, 1)
    assert 0 < keeper.stall_s < math.inf
    keeper.poll()
    assert names(tmp_path) == []
    opened.set()
    keeper.close(ending_well=True)
    assert names(tmp_path) == [name_of(1)]
