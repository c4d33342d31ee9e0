"""Words for a person (print, logging, progress bars) and trackers that a script starts, with the user's line."""

import builtins
import importlib.abc
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from lockstep.trace.events import Output
from lockstep.trace.place import is_users
from lockstep.trace.recorder import Recorder

MOST_LINES = 1000
"""Different lines of the script whose words are told."""
_LONGEST = 200


def install(recorder: Recorder) -> None:
    """Hook `print` and `logging` now, and what may be imported later when it is."""
    output = _Output(recorder)
    recorder.patch(builtins, "print", output.print)
    recorder.patch(logging.StreamHandler, "emit", output.log)
    patches: dict[str, Callable[[ModuleType], None]] = {
        "tqdm.std": lambda module: recorder.patch(module.tqdm, "__init__", output.bar),
        "torch.utils.tensorboard.writer": lambda module: recorder.patch(
            module.SummaryWriter, "__init__", output.tracker("tensorboard", "log_dir", "comment")
        ),
        "tensorboardX.writer": lambda module: recorder.patch(
            module.SummaryWriter, "__init__", output.tracker("tensorboard", "logdir", "comment", "log_dir")
        ),
        "wandb": lambda module: recorder.patch(
            module, "init", output.tracker("wandb", None, "project", "group", "name", "id", "job_type")
        ),
        "mlflow": lambda module: recorder.patch(module, "start_run", output.tracker("mlflow", "run_id", "run_name")),
    }
    waiting = {}
    for name, patch in patches.items():
        if name in sys.modules:
            _quietly(patch, sys.modules[name])
        else:
            waiting[name] = patch
    sys.meta_path.insert(0, _AfterImport(waiting))


class _Output:
    """How often each line has spoken."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[tuple[str, str], int] = {}

    def print(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def words(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            # What a package prints is not the script's word.
            speaks = is_users(sys._getframe(1).f_code.co_filename)
            if speaks and kwargs.get("file") in (None, sys.stdout, sys.stderr):
                separator = kwargs.get("sep")
                self._tell("print", lambda: (" " if separator is None else separator).join(map(str, args)))

        return words

    def log(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def emit(handler: Any, record: logging.LogRecord) -> None:
            original(handler, record)
            if getattr(handler, "stream", None) in (sys.stdout, sys.stderr):
                self._tell("print", record.getMessage)

        return emit

    def bar(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(bar: Any, *args: Any, **kwargs: Any) -> None:
            original(bar, *args, **kwargs)
            if not getattr(bar, "disable", False):
                self._tell("tqdm", lambda: str(getattr(bar, "desc", "") or ""))

        return init

    def tracker(self, what: str, first: str | None, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """`first`: what its first positional argument is called (None: not told). A disabled tracker is none."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def start(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                own = args[1:] if args and what == "tensorboard" else args  # a constructor's first is `self`
                given = {first: own[0], **kwargs} if first is not None and own else kwargs
                if not _disabled(given, result):
                    told = [f"{name}={given[name]}" for name in (first, *names) if name and given.get(name)]
                    self._tell(what, lambda: " ".join(told))
                return result

            return start

        return make

    def _tell(self, what: str, text: Callable[[], str]) -> None:
        if not self._recorder.alive:
            return
        try:
            place = self._recorder.where()
            count = self._counts.get((what, place), 0) + 1
            if not place or (count == 1 and len(self._counts) >= MOST_LINES):
                return
            self._counts[what, place] = count
            if count & (count - 1) == 0:  # a power of two: its words are made a second time only then
                self._recorder.emit(Output(what=what, text=text()[:_LONGEST], count=count, at=place))
        except Exception:
            return  # an object whose `str` fails has failed in the script's own print before


def _disabled(given: dict[str, Any], result: Any) -> bool:
    return given.get("mode") == "disabled" or getattr(result, "disabled", False) is True


def _quietly(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        patch(module)
    except Exception:
        return  # another version of a library, without what we know of it


class _AfterImport(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and patches it once it has been executed."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all but those that are waited for, and for those where nobody finds anything."""
        patch = self._waiting.get(fullname)
        if patch is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                self._attach(spec.loader, fullname, patch)
                return spec
        return None

    def _attach(self, loader: Any, name: str, patch: Callable[[ModuleType], None]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self._waiting.pop(name, None) is not None:
                _quietly(patch, module)

        loader.exec_module = exec_module
