"""What is told of words and trackers."""

import importlib
import logging
import sys
import textwrap
from pathlib import Path

import pytest

from lockstep.trace.events import Event, Output
from tests.trace.hooks.recorded import recorded


def told(events: list[Event]) -> list[tuple[str, str, int]]:
    return [(one.what, one.text, one.count) for one in events if isinstance(one, Output)]


def _print() -> None:
    for number in range(9):
        print("epoch", number, sep="-")
    print("to a file", file=Path("a").open("w"))  # noqa: SIM115
    print("x" * 500, file=sys.stderr)
    print()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_print(tmp_path: Path) -> None:
    events = recorded(tmp_path, "output", _print)
    lines = [("print", f"epoch-{number - 1}", number) for number in (1, 2, 4, 8)]
    assert told(events) == [*lines, ("print", "x" * 200, 1), ("print", "", 1)]
    assert len({one.at for one in events}) == 3 and all(one.at.startswith(f"{__file__}:") for one in events)


class _NoWords:
    def __init__(self) -> None:
        self.asked = 0

    def __str__(self) -> str:
        self.asked += 1
        if self.asked > 1:
            raise RuntimeError("only once")
        return "once"


def _print_what_cannot_be_printed_twice() -> None:
    print(_NoWords())


def test_an_object_that_can_be_printed_once(tmp_path: Path) -> None:
    assert recorded(tmp_path, "output", _print_what_cannot_be_printed_twice) == []


def _log() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    logging.info("loss %.2f", 0.5)
    logging.debug("not shown")


def test_logging(tmp_path: Path) -> None:
    assert told(recorded(tmp_path, "output", _log)) == [("print", "loss 0.50", 1)]


_FAKES = {
    "wandb.py": """
        class Run:
            def __init__(self, disabled):
                self.disabled = disabled
        def init(entity=None, project=None, mode=None, **more):
            return Run(mode == "disabled")
        """,
    "mlflow/__init__.py": "from mlflow.fluent import start_run\n",
    "mlflow/fluent.py": "def start_run(run_id=None, run_name=None): return run_id\n",
    "tqdm/__init__.py": "from .std import tqdm\n",
    "tqdm/std.py": """
        class tqdm:
            def __init__(self, iterable=None, desc=None, disable=False):
                self.desc, self.disable, self.iterable = desc, disable, iterable
            def __iter__(self):
                return iter(self.iterable)
        """,
    "tensorboardX/__init__.py": "from .writer import SummaryWriter\n",
    "tensorboardX/writer.py": """
        class SummaryWriter:
            def __init__(self, logdir=None, comment=""):
                pass
        """,
}


def _libraries() -> None:
    wandb, mlflow, tracker, tqdm = map(importlib.import_module, ("wandb", "mlflow", "tensorboardX", "tqdm"))
    wandb.init(project="p", group="g")
    wandb.init(project="p", mode="disabled")
    mlflow.start_run(run_name="r")
    tracker.SummaryWriter("runs")
    tracker.SummaryWriter()
    assert list(tqdm.tqdm([1, 2], desc="train")) == [1, 2]
    tqdm.tqdm([1], disable=True)
    assert wandb.init.__name__ == "init"


@pytest.mark.parametrize("early", [(), ("wandb", "mlflow", "tensorboardX", "tqdm")], ids=["later", "before"])
def test_libraries_that_are_imported_later_or_were_before(tmp_path: Path, early: tuple[str, ...]) -> None:
    for name, text in _FAKES.items():
        path = tmp_path / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    assert told(recorded(tmp_path, "output", _libraries, early=early)) == [
        ("wandb", "project=p group=g", 1),
        ("mlflow", "run_name=r", 1),
        ("tensorboard", "logdir=runs", 1),
        ("tensorboard", "", 1),
        ("tqdm", "train", 1),
    ]


def _missing() -> None:
    for name in ("tensorboardX", "tensorboardX.missing"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        raise AssertionError(f"{name} is there")


def test_libraries_that_are_not_installed(tmp_path: Path) -> None:
    assert recorded(tmp_path, "output", _missing) == []


def _tensorboard() -> None:
    from torch.utils.tensorboard import SummaryWriter

    SummaryWriter("runs").close()


def test_torchs_own_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert told(recorded(tmp_path, "output", _tensorboard)) == [("tensorboard", "log_dir=runs", 1)]
