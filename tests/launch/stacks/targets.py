"""What the processes do whose stacks are read."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from lockstep.launch.stacks import arm


def begin(armed: str, ready: str, target: Callable[[], None], variables: dict[str, str]) -> None:
    torch.set_num_threads(1)
    os.environ.update(variables)
    if armed:
        arm(Path(armed))
    Path(ready).touch()
    target()


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(1000)


def hold_gil() -> None:
    re.match(r"(a*)*b", "a" * 40)


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_in_queue() -> None:
    queue.Queue[int]().get()


def wait_for_program() -> None:
    subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], check=False)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def end() -> None:
    os._exit(0)


def two_threads() -> None:
    threading.Thread(target=sleep, name="beside", daemon=True).start()
    spin()


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sleep()


class Images(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return load_image(index)


def load_image(index: int) -> int:
    if index >= 2:  # the second worker's
        time.sleep(1000)
    return index


def wait_for_data() -> None:
    for _ in DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
        pass


def _join(folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=int(os.environ["R"]), world_size=2)


def wait_in_all_reduce() -> None:
    _join(os.environ["STORE"])
    if os.environ["R"] == "0":
        dist.all_reduce(torch.ones(1))
    sleep()


def wait_in_backward() -> None:
    _join(os.environ["STORE"])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    if os.environ["R"] == "0":
        model(torch.ones(1, 2)).sum().backward()
    sleep()


def wait_for_rank_1() -> None:
    if os.environ["R"] == "0":
        _join(os.environ["STORE"])
    sleep()
