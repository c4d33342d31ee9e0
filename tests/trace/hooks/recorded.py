"""A function under one hook, in a process of its own: hooks stay for the life of a process."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from lockstep.trace.events import End, Event
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.trace import read_trace
from tests.ranks import run_ranks


def recorded(folder: Path, hook: str, work: Callable[..., None], *args: Any, early: Sequence[str] = ()) -> list[Event]:
    """Events of `work(*args)` in `folder/work` under a hook of `lockstep.trace.hooks`; End is left out.

    early: modules to import before the hook is there. Modules may lie in `folder/modules`.
    """
    for name in ("work", "trace"):
        (folder / name).mkdir()
    (events,) = run_ranks(_in_rank, 1, str(folder), hook, early, work, args)
    return list(events[:-1])


def _in_rank(
    folder: str, hook: str, early: Sequence[str], work: Callable[..., None], args: tuple[Any, ...]
) -> tuple[Event, ...]:
    sys.path.insert(0, str(Path(folder) / "modules"))
    for name in early:
        import_module(name)
    os.chdir(Path(folder) / "work")
    recorder = Recorder(Plan(Path(folder) / "trace"), 0)
    import_module(f"lockstep.trace.hooks.{hook}").install(recorder)
    work(*args)
    recorder.end(End(how="returned"))
    return read_trace(Path(folder) / "trace").ranks[0].events
