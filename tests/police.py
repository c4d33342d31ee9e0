"""What a test may not leave behind: processes, threads, process groups, settings of this process, files in the tree.

A look costs about a millisecond. Only what began in the test counts, so fixtures of a wider scope may keep things.
torch is never imported here: what was not imported was not changed.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import active_children, forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil

REPO = Path(__file__).resolve().parents[1]
MARK = "LOCKSTEP_TESTED_BY"
GRACE_S = 2.0  # how long a process or thread that was told to end may still be seen
CACHES = {"__pycache__", "build", "dist", "node_modules"}  # and every name that begins with a dot
WRITTEN_BY_HAND = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
    ".css",
    ".html",
    ".tmp",
    ".swp",
}  # tests run meanwhile
# pytest's own, and what libraries set once when they are imported.
FREE_VARIABLES = ("PYTEST_", "KMP_", "TORCHINDUCTOR_", "TRITON_", "TF_", "GRPC_")
SIGNALS = (signal.SIGINT, signal.SIGTERM)

os.environ[MARK] = str(os.getpid())  # every process that comes from this one carries it, orphans too


@dataclass(frozen=True)
class World:
    """The state of this process and what it has started, at one moment."""

    pids: frozenset[int]
    threads: frozenset[threading.Thread]
    variables: dict[str, str]
    folder: str
    handlers: tuple[Any, ...]
    torch: dict[str, Any]
    tree: frozenset[str]


def look() -> World:
    """Look at everything a test may not change."""
    return World(
        pids=frozenset(psutil.pids()),
        threads=frozenset(threading.enumerate()),
        variables=_variables(),
        folder=_folder(),
        handlers=tuple(signal.getsignal(number) for number in SIGNALS),
        torch=_torch_state(),
        tree=_artefacts(),
    )


def leaks(before: World) -> list[str]:
    """What changed since `before`, a line each; empty when nothing did."""
    return [*_processes(before), *_threads(before), *_settings(before), *_torch(before), *_files(before)]


def clean_up(before: World) -> None:
    """Undo what can be undone, so that the next test is judged by its own deeds."""
    for process in _living(before):
        with contextlib.suppress(psutil.Error):
            process.kill()
    dist = _loaded("torch.distributed")
    if dist is not None and _group_lives():
        dist.destroy_process_group()
    for name in _variables().keys() - before.variables.keys():
        del os.environ[name]
    os.environ.update(before.variables)
    os.chdir(before.folder or REPO)
    for number, handler in zip(SIGNALS, before.handlers, strict=True):
        if handler is not None:
            signal.signal(number, handler)
    torch = _loaded("torch")
    if torch is not None and "default dtype" in before.torch:
        torch.set_default_dtype(before.torch["default dtype"])
        torch.set_num_threads(before.torch["number of threads"])
        torch.set_grad_enabled(before.torch["grad mode"])
        torch.use_deterministic_algorithms(before.torch["deterministic algorithms"])


def _processes(before: World) -> Iterator[str]:
    active_children()  # joins the children that have ended
    for process in _wait_until_gone(lambda: _living(before)):
        with contextlib.suppress(psutil.Error):
            yield f"process {process.pid}: {' '.join(process.cmdline())[:200] or process.name()}"


def _living(before: World) -> list[psutil.Process]:
    """Processes that began since, come from this one, and run."""
    helpers = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}  # type: ignore[attr-defined]
    found = []
    for pid in set(psutil.pids()) - before.pids - helpers:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            ours = process.ppid() == os.getpid() or process.environ().get(MARK) == str(os.getpid())
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _threads(before: World) -> Iterator[str]:
    def living() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one not in before.threads and not one.daemon]

    for thread in _wait_until_gone(living):
        yield f"thread {thread.name!r}, not a daemon"


def _wait_until_gone(living: Any) -> list[Any]:
    deadline = time.monotonic() + GRACE_S
    while (found := living()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return list(found)


def _settings(before: World) -> Iterator[str]:
    now = _variables()
    for name in sorted(now.keys() | before.variables.keys()):
        if now.get(name) != before.variables.get(name):
            yield f"environment variable {name}: {before.variables.get(name)!r} became {now.get(name)!r}"
    if _folder() != before.folder:
        yield f"working folder: {before.folder} became {_folder() or 'a deleted folder'}"
    for number, handler in zip(SIGNALS, before.handlers, strict=True):
        if signal.getsignal(number) != handler:
            yield f"handler of {number.name}: {handler} became {signal.getsignal(number)}"


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(FREE_VARIABLES)}


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _torch(before: World) -> Iterator[str]:
    now = _torch_state()
    for name, value in now.items():
        expected = before.torch.get(name, _FRESH.get(name, value))
        if str(value) != str(expected):
            yield f"torch {name}: {expected} became {value}"


# What torch has when it is imported; the number of threads depends on the machine.
_FRESH = {
    "default dtype": "torch.float32",
    "grad mode": True,
    "deterministic algorithms": False,
    "process group": False,
}


def _torch_state() -> dict[str, Any]:
    torch = _loaded("torch")
    if torch is None:
        return {}
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "process group": _group_lives(),
    }


def _group_lives() -> bool:
    dist = _loaded("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def _loaded(name: str) -> Any:
    """A module that is imported completely, else None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


def _files(before: World) -> Iterator[str]:
    # A file that goes by itself is another test's, which runs beside this one.
    for path in sorted(_wait_until_gone(lambda: _artefacts() - before.tree)):
        yield f"file in the repository: {path}"


def _artefacts() -> frozenset[str]:
    """The files of the repository that nobody writes by hand, relative to its root."""
    found = set()
    folders = [str(REPO)]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for one in entries:
                if one.is_dir(follow_symlinks=False):
                    if not _is_cache(one.name):
                        folders.append(one.path)
                elif not _by_hand(one.name):
                    found.add(os.path.relpath(one.path, REPO))
    return frozenset(found)


def _by_hand(name: str) -> bool:
    return name.startswith(".") or name.endswith("~") or os.path.splitext(name)[1] in WRITTEN_BY_HAND  # noqa: PTH122


def _is_cache(name: str) -> bool:
    return name.startswith(".") or name in CACHES or name.endswith(".egg-info")
