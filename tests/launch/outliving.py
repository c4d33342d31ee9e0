"""A rank under torchrun that waits, with a loader worker; and forked processes that outlive who has started them."""

import os
import signal
import sys
import time
from pathlib import Path

SCRIPT = """
import multiprocessing, pathlib, sys, time, torch.distributed as dist

def worker():
    time.sleep(300)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    child = multiprocessing.get_context("fork").Process(target=worker)
    child.start()
    (pathlib.Path(sys.argv[1]) / f"rank-{dist.get_rank()}.tmp").write_text(str(child.pid))
    (pathlib.Path(sys.argv[1]) / f"rank-{dist.get_rank()}.tmp").rename(
        pathlib.Path(sys.argv[1]) / f"rank-{dist.get_rank()}")
    time.sleep(300)
"""

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def hold_record(record: str, said: str) -> None:
    """A forked rank of ours, in a session of its own: it keeps its record open and waits."""
    os.setsid()
    Path(record).parent.mkdir(parents=True, exist_ok=True)
    with Path(record).open("w"):
        _say(said)
        time.sleep(300)


def leave_holder(record: str, said: str, uid: int | None = None) -> None:
    """As `hold_record`, in a child whose parent ends at once. uid: whose the child is."""
    if os.fork() == 0:
        if uid is not None:
            os.setuid(uid)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        hold_record(record, said)
    os._exit(0)


def _say(said: str) -> None:
    Path(f"{said}.tmp").write_text(str(os.getpid()))
    Path(f"{said}.tmp").rename(said)


def wait_for(path: Path, timeout_s: float = 60) -> str:
    """The text of a file that somebody else is about to write."""
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
    return path.read_text()
