"""The trackers that a config asks for."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.runtime.config import Config
from lockstep.runtime.trackers import Tracker
from lockstep.runtime.trackers.courier import Courier
from lockstep.runtime.trackers.memory import Memory
from lockstep.runtime.trackers.mlflow_run import MlflowRun
from lockstep.runtime.trackers.tensor_board import tensorboard_wanted
from lockstep.runtime.trackers.wandb_run import WandbRun


def check_trackers(config: Config, own: Sequence[Tracker] = ()) -> None:
    """Look whether the packages are there, before anything else takes time.

    Raises:
        UserError: one is asked for and missing, or two trackers have one name.
    """
    tensorboard_wanted(config.log.tensorboard)
    for name, choice in (("wandb", config.log.wandb), ("mlflow", config.log.mlflow)):
        if choice != "off" and not _installed(name):
            next_step = f"pip install 'torch-lockstep[{name}]', or log.{name}=off"
            raise UserError(explain(f"log.{name}={choice}, but {name} is not installed", next_step=next_step))
    names = [one.name for one in [*_ours(config), *own]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(explain(f"two trackers are named {', '.join(twice)}", "each has a name of its own", "trackers"))


def couriers(config: Config, own: Sequence[Tracker], folder: Path, go_on: bool) -> list[Courier]:
    """One way to each tracker, not yet begun.

    Args:
        config: the resolved config.
        own: the user's own trackers.
        folder: of the run.
        go_on: whether this start goes on with what an earlier one has written there.
    """
    trackers = [*_ours(config), *own]
    if not trackers:
        return []
    memory = Memory(folder, go_on)
    hints = {
        WandbRun.name: "look at the network and the server, or log.wandb=offline",
        MlflowRun.name: "look at log.mlflow, log.project and the server, or log.mlflow=off",
    }
    return [Courier(one, memory, hints.get(one.name, "")) for one in trackers]


def _installed(package: str) -> bool:
    """A folder of that name, such as the one that W&B leaves in the current one, is no package."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def _ours(config: Config) -> list[Tracker]:
    log, found = config.log, list[Tracker]()
    if log.wandb != "off":
        found.append(WandbRun(log.wandb == "offline", log.project, log.name is not None))
    if log.mlflow != "off":
        found.append(MlflowRun(log.mlflow, log.project))
    return found
