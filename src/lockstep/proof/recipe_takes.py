"""Takes of a recipe: the runtime itself, recorded."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lockstep.proof import sandbox
from lockstep.proof.modes import Mode
from lockstep.proof.takes import Prepared, Studio, Take, Watch
from lockstep.recipes import BUILTIN
from lockstep.recipes.names import locate
from lockstep.recipes.resolve import load_recipe, recipe_class
from lockstep.runtime.config import Config, load_config
from lockstep.runtime.logs import rank_logs
from lockstep.runtime.world import Place, World
from lockstep.trace import hooks
from lockstep.trace.events import End
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.script import Program, start_event
from lockstep.trace.trace import RankTrace
from lockstep.trace.whoami import Whoami

ALWAYS = (
    "run.device=cpu",
    "run.threads=1",
    "log.tensorboard=off",
    "log.wandb=off",
    "log.mlflow=off",
    "log.progress=off",
    "checkpoint.asynchronous=false",
)
DOUBLE = ("precision=fp64", "data.workers=0", "log.every_steps=1")


@dataclass(frozen=True)
class RecipeMode(Mode):
    """How a recipe is run. other_noise: its ranks draw from other streams than they would."""

    other_noise: bool = False

    def __call__(self, recorder: Recorder, feed: object) -> None:
        """Called when the hooks are in place."""
        super().__call__(recorder, None)
        if self.other_noise:
            from lockstep.runtime import loop

            module: Any = loop
            original = module.seed_rank_step
            module.seed_rank_step = lambda seed, rank, step: original(seed, rank + 1_000_000, step)


@dataclass(frozen=True)
class RecipeRun:
    """One start of `lockstep train`. resume: go on from the newest checkpoint. max_steps: steps to stop at."""

    config: Config
    folder: Path
    max_steps: int
    resume: bool = False


def recipe_rank(run: RecipeRun, program: Program, plan: Plan, prepare: Prepared) -> None:
    """What a launched rank runs: `lockstep train` under the recorder."""
    place = Place.from_environment()
    who = Whoami(place.rank, place.num_ranks, place.rank_of_node, place.ranks_per_node, "torchrun")
    torch.set_num_threads(1)
    recorder = Recorder(plan, place.rank)
    recorder.emit(start_event(program, plan, who))
    hooks.install(recorder)
    prepare(recorder, None)
    os.chdir(program.cwd)
    try:
        _train(run)
    except BaseException as error:
        recorder.end(End(how="raised", code=1, error=f"{type(error).__name__}: {error}"[:4000]))
        raise
    recorder.end(End(how="returned"))


def imported(name: str) -> None:
    """Import what the ranks will need: they are forked from here. A file of the user's is left to them."""
    import torchmetrics.classification  # noqa: F401

    import lockstep.runtime.training  # noqa: F401

    if name in BUILTIN:
        recipe_class(name)


def _train(run: RecipeRun) -> None:
    from lockstep.runtime.training import fit, prepare_folder

    config = run.config
    with World.enter("cpu", 1, config.parallel.timeout_s) as world:
        if world.is_main:
            prepare_folder(run.folder, config, run.resume)
        world.barrier()
        with rank_logs(run.folder / "logs", world.rank):
            recipe = load_recipe(config.recipe, config.options)
            fit(recipe, config, world, run.folder, run.resume, "lockstep verify", run.max_steps)


@dataclass(frozen=True)
class Recipes:
    """Makes takes of one config. path, overrides: as for `lockstep train`. cwd: where it would be started."""

    studio: Studio
    path: Path | None
    overrides: tuple[str, ...]
    cwd: Path

    def config(self, *more: str) -> Config:
        """The resolved config, with further overrides."""
        return load_config(self.path, [*self.overrides, *more])

    @property
    def script(self) -> Path:
        """The file that defines the recipe."""
        name = self.config().recipe
        if name in BUILTIN:
            import lockstep

            return Path(lockstep.__file__).parent / "recipes" / f"{name}.py"
        return locate(name, None).path.resolve()

    def take(
        self,
        name: str,
        num_ranks: int,
        max_steps: int,
        overrides: Sequence[str] = (),
        mode: RecipeMode = RecipeMode(),
        after: Take | None = None,
        keep: bool = True,
        watched: Callable[[Path], Watch] | None = None,
    ) -> Take:
        """Run it once.

        Args:
            max_steps: optimizer steps.
            after: a take whose run it goes on with, in a copy of that run's folder.
            keep: values are kept for comparison. watched: makes of the take's folder what may end it from outside.
        """
        home = self.studio.home(name)
        root = home / "work"
        workspace = sandbox.copy_with_surroundings(self.cwd.resolve(), root)
        folder = home / "run"
        if after is not None:
            shutil.copytree(after.folder.parent / "run", folder)
        config = self.config(*ALWAYS, *overrides, f"run.dir={folder}")
        run = RecipeRun(config, folder, max_steps, after is not None)
        script = self.script
        moved = workspace / script.relative_to(self.cwd) if script.is_relative_to(self.cwd) else script
        program = Program(moved, (), workspace)
        plan = Plan(home / "trace", True, keep)
        args = (run, program, plan, Prepared(mode, root, home))
        take = self.studio.launch(name, recipe_rank, args, num_ranks, home, root, watched)
        callers = _callers() - {str(script)}
        ranks = tuple(_without(rank, callers) for rank in take.trace.ranks)
        take = replace(take, trace=replace(take.trace, ranks=ranks))
        self.studio.takes[-1] = take
        return take


def _callers() -> set[str]:
    """Files on this process's stack: a forked rank has them below its own, and they are no place in the recipe."""
    frame: FrameType | None = sys._getframe()
    found = set()
    while frame is not None:
        found.add(frame.f_code.co_filename)
        frame = frame.f_back
    return found


def _without(rank: RankTrace, files: set[str]) -> RankTrace:
    events = (replace(event, at="") if event.at.rpartition(":")[0] in files else event for event in rank.events)
    return replace(rank, events=tuple(events))
