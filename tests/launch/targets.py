"""What the ranks of the launch tests do."""

import atexit
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from lockstep.core.errors import Preempted, RunError, UserError, explain


class Numbers(Dataset[int]):
    """Numbers; the one at `bad` raises."""

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise UserError(explain(f"sample {index} is broken", "every sample can be read", next_step="look at it"))
        return index


def join() -> int:
    """Returns this rank, when all have joined: a rank that fails earlier makes gloo write to stderr by itself."""
    dist.init_process_group("gloo")
    meet()
    return dist.get_rank()


def meet() -> None:
    dist.all_reduce(torch.ones(1))


def ready() -> None:
    Path(os.environ["READY_FOLDER"], f"ready-{os.environ['RANK']}").touch()


def show_environment(*args: str) -> None:
    rank = join()
    state = {
        "args": args,
        "handler of SIGINT": repr(signal.getsignal(signal.SIGINT)),
        "group": os.getpgrp() == os.getpid(),
        "starts workers by": multiprocessing.get_start_method(),
    }
    print(json.dumps({rank: {**state, **os.environ}}), flush=True)
    dist.destroy_process_group()


def be_done_at_different_times() -> None:
    if join() == 1:
        time.sleep(0.7)
    ready()


def raise_on(rank: int) -> None:
    if join() == rank:
        error = ValueError("label 12 is outside the 11 classes")
        error.add_note("training, step 3")
        raise error
    meet()


def user_error_on(ranks: list[int]) -> None:
    if int(os.environ["RANK"]) in ranks:
        raise UserError(explain("the dataset is empty", "at least one sample", next_step="check data.path"))
    time.sleep(30)


def preempted() -> None:
    raise Preempted("Preempted after saving step 3.")


def run_error_from_lost_connection(rank: int) -> None:
    if join() == rank:
        raise KeyError("colour")
    try:
        meet()
    except RuntimeError as error:
        raise RunError("the ranks could not agree") from error


def leave_on(rank: int, code: int) -> None:
    if join() == rank:
        os._exit(code)
    meet()


def sys_exit_on(rank: int) -> None:
    if join() == rank:
        sys.exit(3)
    meet()


def return_early_on(rank: int) -> None:
    if join() == rank:
        return
    meet()


def crash_on(rank: int) -> None:
    if join() == rank:
        ctypes.string_at(0)
    meet()


def work_for_ever() -> None:
    join()
    ready()
    while True:
        meet()
        time.sleep(0.01)


def work_with_children() -> None:
    """Two persistent workers, a program from a thread that has ended, a main thread stuck in C with the GIL."""
    join()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    started = []  # kept: a forgotten Popen warns
    starter = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "1000"])))
    starter.start()
    starter.join()
    meet()
    ready()
    ctypes.PyDLL(None).sleep(1000)


def broken_sample_in_worker() -> None:
    for _ in DataLoader(Numbers(bad=9), batch_size=4, num_workers=1):
        pass


def broken_number() -> None:
    int("eleven")


def linger_in_thread() -> None:
    """Done, but for a thread and an exit handler that have still something to write."""

    def write() -> None:
        time.sleep(0.3)
        ready()

    threading.Thread(target=write).start()
    atexit.register(lambda: print("exit handler", flush=True))
