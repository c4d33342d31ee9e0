"""The writer lets training go on, says how every save ended, and loses nothing when killed or when the disk is full."""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import lockstep.runtime.state.writer as module
from lockstep.runtime.config import CheckpointConfig
from lockstep.runtime.state.checkpoint import Snapshot, name_of, newest_whole, read, write
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.saver import Saver
from lockstep.runtime.state.writer import Writer, Written
from tests.disks import remount, small_disk
from tests.ranks import PRELOAD
from tests.runtime.state.snapshots import names, snapshot, written


def nothing(_: Snapshot) -> None:
    pass


class Gate:
    """Stands where `write` is, and lets a save through only when it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.began = threading.Event(), threading.Event()
        monkeypatch.setattr(module, "write", self.write)

    def write(self, folder: Path, shot: Snapshot, fellows: object = None) -> Path:
        self.began.set()
        assert self.opened.wait(10)
        return write(folder, shot)


def test_submit_returns_before_the_write_ends_and_close_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    writer = Writer(tmp_path, True, nothing)
    writer.submit(snapshot(1))
    assert gate.began.wait(10)
    writer.submit(snapshot(2))
    assert writer.finished() == [] and not names(tmp_path)
    threading.Timer(0.1, gate.opened.set).start()
    assert writer.close() == [Written(step, tmp_path / name_of(step)) for step in (1, 2)]
    assert not [thread for thread in threading.enumerate() if thread.name == "checkpoint-writer"]
    assert writer.close() == []


def test_the_third_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two copies are held in memory beside the model."""
    gate = Gate(monkeypatch)
    writer = Writer(tmp_path, True, nothing)
    for step in (1, 2):
        writer.submit(snapshot(step))
        assert gate.began.wait(10)
    third = threading.Thread(target=writer.submit, args=(snapshot(3),))
    third.start()
    third.join(0.1)
    assert third.is_alive()
    gate.opened.set()
    third.join(10)
    assert [ended.step for ended in writer.close()] == [1, 2, 3]


def test_without_a_thread_submit_returns_when_all_is_on_disk(tmp_path: Path) -> None:
    writer = Writer(tmp_path, False, nothing)
    threads = threading.active_count()
    writer.submit(snapshot(1))
    assert threading.active_count() == threads
    assert writer.finished() == [Written(1, tmp_path / name_of(1))]
    assert writer.finished() == writer.close() == []


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_is_told_and_the_next_save_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    def fail_at_two(folder: Path, shot: Snapshot, fellows: object = None) -> Path:
        if shot.step < 3:
            raise OSError(28, "No space left on device")
        return write(folder, shot)

    writer = Writer(tmp_path, asynchronous, nothing)
    monkeypatch.setattr(module, "write", fail_at_two)
    writer.submit(snapshot(1))
    written(tmp_path, 1)
    for step in (2, 3):
        writer.submit(snapshot(step))
    first, second, third = writer.close()
    assert first.path is second.path is None
    assert "No space left" in first.error
    assert second.error.endswith("the last good one is step-00000001")
    assert third == Written(3, tmp_path / name_of(3))


def test_a_first_failure_says_that_there_is_none_yet(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = Writer(tmp_path / "file", False, nothing)
    writer.submit(snapshot(1))
    (ended,) = writer.close()
    assert ended.path is None and ended.error.endswith("there is none yet")


def test_a_save_whose_pruning_fails_is_saved(tmp_path: Path) -> None:
    def fail(_: Snapshot) -> None:
        raise OSError("cannot delete")

    writer = Writer(tmp_path, False, fail)
    writer.submit(snapshot(1))
    assert writer.close() == [Written(1, tmp_path / name_of(1), "cannot delete")]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "192k"):
        folder = tmp_path / "disk" / "checkpoints"
        writer = Writer(folder, False, nothing)
        for step in range(1, 8):
            writer.submit(snapshot(step, size=512))  # 16 KiB of weights and as much of state
        ended = writer.close()
        good = [one.step for one in ended if one.path]
        assert 2 <= len(good) < 7
        assert ended[-1].error.endswith(f"the last good one is {name_of(good[-1])}")
        assert newest_whole(folder) == (folder / name_of(good[-1]), [])
        assert names(folder) == [name_of(step) for step in good]
        remount(tmp_path / "disk", "size=1m")
        writer.submit(snapshot(8, size=512))
        assert writer.close()[0].path
        assert read(folder / name_of(8)).manifest["step"] == 8


# ---- killed ----


class FixedState:
    """In place of `State`: its weights are what the round says, so that rewriting a step changes them."""

    def __init__(self, value: float) -> None:
        self.value = value

    def snapshot(self, position: Position, about: Mapping[str, Any], spent: Snapshot | None = None) -> Snapshot:
        shot = snapshot(position.step, value=self.value, size=256, best_step=position.best_step)
        return replace(shot, about=about)


EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "shutil.rmtree"}


def saver(folder: Path) -> Saver:
    config = CheckpointConfig(keep_last=1, asynchronous=False)
    return Saver(folder, config, {}, acts=True)


def dying_writer(folder: Path, step: int, value: float, at: int) -> None:
    """Save one step, and die at the `at`th thing that is done to a file of the folder."""
    count = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal count
        if event in EVENTS and str(args[0]).startswith(str(folder)):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    best = step if value % 2 else None
    saver(folder).save(FixedState(value), Position(step=step, best_step=best))  # type: ignore[arg-type]


def in_child(target: object, *args: object) -> multiprocessing.process.BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    child = context.Process(target=target, args=args)  # type: ignore[arg-type]
    child.start()
    return child


def only_value(path: Path) -> float:
    """The value that every tensor of a whole checkpoint has."""
    found = read(path)
    values = [*found.tensors.values(), found.trainer["optimizer"]["state"][0]["exp_avg"]]
    (value,) = {float(one) for tensor in values for one in tensor.unique()}
    return value


@pytest.mark.parametrize("step", [1, 2], ids=["the same step", "the next step"])
def test_killed_at_every_stage_the_old_or_the_new_one_is_whole(tmp_path: Path, step: int) -> None:
    stages = 0
    for at in range(1, 100):
        folder = tmp_path / str(at)
        write(folder, snapshot(1, value=3.0, size=256))
        child = in_child(dying_writer, folder, step, 5.0, at)
        child.join()
        code = child.exitcode
        child.close()
        path, refused = newest_whole(folder)
        assert path is not None and not refused, at
        assert only_value(path) in (3.0, 5.0)
        # A second writer goes on from there and tidies up.
        saver(folder).save(FixedState(7.0), Position(step=step, best_step=step))  # type: ignore[arg-type]
        assert only_value(newest_whole(folder)[0] or folder) == 7.0
        assert names(folder) == ["best", name_of(step)]
        stages += code == -signal.SIGKILL
        if code == 0:
            break
    assert stages > 12


def restless_writer(folder: Path, told: Connection, seed: int) -> None:
    """Save for ever, one step on or the same step again, and tell when a save is on disk."""
    dice, keeper = random.Random(seed), saver(folder)
    path, _ = newest_whole(folder)
    value = only_value(path) if path else 0.0
    step = read(path).manifest["step"] if path else 0
    while True:
        step += dice.random() < 0.7
        value += 1
        best = step if dice.random() < 0.3 else None
        keeper.save(FixedState(value), Position(step=step, best_step=best))  # type: ignore[arg-type]
        told.send(value)


def test_killed_at_random_moments_the_last_good_one_is_never_lost(tmp_path: Path) -> None:
    dice, last = random.Random(), 0.0
    for round_ in range(25):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = in_child(restless_writer, tmp_path, theirs, round_)
        theirs.close()
        if ours.poll(10):
            time.sleep(dice.random() * 0.03)
        child.kill()
        child.join()
        child.close()
        try:
            while True:
                last = ours.recv()
        except (EOFError, OSError):
            ours.close()
        path, refused = newest_whole(tmp_path)
        assert path is not None and not refused
        found = only_value(path)
        assert last <= found <= last + 1, f"round {round_}: {names(tmp_path)}"
        last = found
    assert last > 25
