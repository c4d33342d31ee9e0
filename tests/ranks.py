"""Real ranks for tests: `run_ranks` runs a function on N processes, in a fraction of a second.

The processes are forked from a fork server that has imported torch and lockstep once. They get torchrun's environment
and nothing else: the function joins the process group itself, by `World.enter()` or `init_process_group`, and leaves
it.
"""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from operator import attrgetter
from pathlib import Path
from typing import Any

PRELOAD = [
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch._dynamo",  # the wrapper imports both, for a second and a half
    "torch._inductor",
    "pytest",
    "lockstep.runtime.training",
]
GRACE_S = 3.0  # after the first failure the other ranks get this long to fail by themselves, with their own traceback
STACK_S = 0.5  # how long a hung rank may take to write its stack


@dataclass
class _Rank:
    """One started rank, and what came of it: a result, a reason for failure, or neither yet."""

    rank: int
    process: ForkServerProcess
    pipe: Connection
    stack: Path
    failure: str | None = None
    result: Any = None
    done: bool = False
    failed_at: float = 0.0

    def hear(self) -> None:
        """Take the rank's message; without one it died, and then it counts as the first to fail."""
        try:
            ok, self.failed_at, payload = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.process.join(GRACE_S)
            ok, payload = False, f"died without a word: {_how_it_ended(self.process.exitcode)}"
        self.done = True
        self.result, self.failure = (payload, None) if ok else (None, payload)

    def end(self, reason: str) -> None:
        """Kill a rank that did not come back, with its Python stacks as the reason for failure."""
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)
            deadline = time.monotonic() + STACK_S
            while time.monotonic() < deadline and not self.stack.stat().st_size:
                time.sleep(0.01)
            time.sleep(0.05)
        self.process.kill()
        stacks = self.stack.read_text() or "  (no Python stack: stopped, or in native code)"
        self.failure = f"{reason}; its threads were at\n{stacks}"


def run_ranks(
    fn: Callable[..., Any],
    num_ranks: int,
    *args: Any,
    timeout_s: float = 60.0,
    ranks_per_node: int | None = None,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """Run `fn(*args)` on `num_ranks` processes at once and return what each rank returned, by rank.

    Args:
        fn: a function at the top level of a module; arguments and result must pickle. Tensors are copied.
        num_ranks: how many processes.
        args: the same for every rank; a rank learns who it is from RANK or from `World`.
        timeout_s: seconds until the ranks that are still running are killed, their stacks shown.
        ranks_per_node: pretend that there are several nodes (LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK).
        env: further environment variables of the ranks.

    Raises:
        AssertionError: a rank raised, died, hung or left its process group alive; it shows every rank's traceback.
    """
    work = pickle.dumps((fn, args))
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        shared = {**os.environ, **(env or {}), "MASTER_PORT": str(_free_port())}
        ranks: list[_Rank] = []
        try:
            for rank in range(num_ranks):
                own = _torchrun_env(rank, num_ranks, ranks_per_node or num_ranks)
                ranks.append(_start(rank, {**shared, **own}, work, Path(folder) / f"{rank}.stack"))
            first = _collect(ranks, timeout_s)
        finally:
            for one in ranks:
                one.process.kill()
            for one in ranks:
                one.process.join()
                one.process.close()
                one.pipe.close()
    if first:
        raise AssertionError(_report(first, ranks, getattr(fn, "__name__", repr(fn))))
    return [one.result for one in ranks]


def _start(rank: int, env: dict[str, str], work: bytes, stack: Path) -> _Rank:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    stack.touch()
    ours, theirs = context.Pipe(duplex=False)
    # A daemon may not have children of its own, and a rank may want loader workers.
    process = context.Process(
        target=_rank_main, args=(theirs, env, work, warnings.filters, str(stack)), name=f"rank {rank}", daemon=False
    )
    process.start()
    theirs.close()
    return _Rank(rank, process, ours, stack)


def _collect(ranks: list[_Rank], timeout_s: float) -> list[_Rank]:
    """Wait for every rank; return the failed ones, the first to fail first."""
    failed: list[_Rank] = []
    deadline = time.monotonic() + timeout_s
    while waiting := [one for one in ranks if not one.done]:
        ready = wait([one.pipe for one in waiting], max(0.0, deadline - time.monotonic()))
        if not ready:
            reason = "still running after another rank failed" if failed else f"still running after {timeout_s:g} s"
            for one in waiting:
                one.end(reason)
            return sorted(failed, key=attrgetter("failed_at")) + waiting
        for one in waiting:
            if one.pipe in ready:
                one.hear()
                if one.failure is not None:
                    failed.append(one)
                    deadline = min(deadline, time.monotonic() + GRACE_S)
    return sorted(failed, key=attrgetter("failed_at"))


def _report(failed: list[_Rank], ranks: list[_Rank], name: str) -> str:
    fine = [str(one.rank) for one in ranks if one not in failed]
    lines = [f"{name} failed on {len(failed)} of {len(ranks)} ranks (first: rank {failed[0].rank})"]
    lines += [f"--- rank {one.rank}: {(one.failure or '').rstrip()}" for one in failed]
    return "\n".join([*lines, f"--- no failure on rank {', '.join(fine)}" if fine else ""]).rstrip()


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"


def _torchrun_env(rank: int, num_ranks: int, ranks_per_node: int) -> dict[str, str]:
    node, rank_of_node = divmod(rank, ranks_per_node)
    values = {
        "RANK": rank,
        "WORLD_SIZE": num_ranks,
        "LOCAL_RANK": rank_of_node,
        "LOCAL_WORLD_SIZE": min(ranks_per_node, num_ranks - node * ranks_per_node),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-num_ranks // ranks_per_node),
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return {key: str(value) for key, value in values.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- in the rank ----


def _rank_main(pipe: Connection, env: dict[str, str], work: bytes, filters: Iterable[Any], stack: str) -> None:
    _die_with_parent()
    multiprocessing.set_start_method(None, force=True)  # for what the rank starts, as under torchrun
    os.environ.clear()
    os.environ.update(env)
    _same_warnings(filters)
    with Path(stack).open("w") as file:
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
        try:
            message = pickle.dumps((True, 0.0, _work(work)))
        except BaseException:  # a rank must always answer, SystemExit included
            message = pickle.dumps((False, time.monotonic(), traceback.format_exc()))
        pipe.send_bytes(message)
        faulthandler.unregister(signal.SIGUSR1)


def _work(work: bytes) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    fn, args = pickle.loads(work)
    result = fn(*args)
    if dist.is_initialized():
        raise AssertionError("the function left its process group alive: leave World.enter() or destroy the group")
    return result


def _same_warnings(filters: Iterable[Any]) -> None:
    """A warning is an error in the ranks where it is one in pytest."""
    warnings.resetwarnings()
    for action, message, category, module, lineno in reversed(list(filters)):
        patterns = [getattr(one, "pattern", one) or "" for one in (message, module)]
        warnings.filterwarnings(action, patterns[0], category, patterns[1], lineno)


def _die_with_parent() -> None:
    """The fork server ends with pytest; then the kernel kills the ranks, whatever they wait for."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
