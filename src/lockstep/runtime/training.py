"""Train one recipe on the ranks of a world: the run's folder, its logs, its session and its loop."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from lockstep.core.errors import RunError, UserError, explain
from lockstep.core.files import write_text
from lockstep.runtime.config import Config, dump_config
from lockstep.runtime.display import Display
from lockstep.runtime.evaluation import check_metrics
from lockstep.runtime.journal import Journal
from lockstep.runtime.loop import Loop
from lockstep.runtime.manifest import describe, source_digest
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.session import Session, build_session
from lockstep.runtime.state.saver import Saver
from lockstep.runtime.state.tensors import tensors_digest
from lockstep.runtime.world import World

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class Summary:
    """How a run ended, the same on every rank.

    Attributes:
        step: optimizer steps done.
        epoch: epochs done.
        results: the last evaluation.
        run_dir: where everything is.
        ending: `done`, `stopped early` for want of progress, `stopped` by a limit of steps, or `preempted`.
    """

    step: int
    epoch: int
    results: dict[str, float]
    run_dir: Path
    ending: str


def fit(
    recipe: Recipe,
    config: Config,
    world: World,
    run_dir: Path,
    resume: bool = False,
    launch: str = "library",
    max_steps: int | None = None,
    on_step: Callable[[int], None] | None = None,
    stop_asked: Callable[[], bool] | None = None,
) -> Summary:
    """Train to the end of the config's stop rules. All ranks call it together.

    Args:
        recipe: the task.
        config: the resolved config.
        world: the ranks.
        run_dir: folder of the run; made by rank 0 where it is missing.
        resume: go on from its newest whole checkpoint.
        launch: how the ranks were started, for the manifest.
        max_steps: optimizer steps to stop at this time, beside `stop.max_steps`; a resume goes on.
        on_step: called after each optimizer step with the steps done.
        stop_asked: whether this rank was asked to stop, as `stop_signals` tells. All ranks then stop after the same
            step, or in the middle of an evaluation, which is done again; they save, and the ending is `preempted`.
    """
    checkpoints = run_dir / "checkpoints"
    if world.is_main:
        prepare_folder(run_dir, config, resume)
    with ExitStack() as leaving:
        leaving.enter_context(_deterministic(config.run.deterministic))
        session = build_session(recipe, config, world, checkpoints if resume else None, max_steps, stop_asked)
        leaving.callback(session.replica.close)
        check_metrics(recipe)
        check_best(session)
        about = _introduce(session, run_dir, launch, resume)
        saver = Saver(checkpoints, config.checkpoint, about, world.is_main)
        saver.saved = session.position if resume else None
        journal = _journal(session, run_dir, resume) if world.is_main else None
        if journal is not None:
            leaving.callback(journal.close)
        display = Display(session.total_steps, session.position.step, config.log.progress, world.is_main)
        leaving.callback(display.close)
        loop = Loop(session, saver, journal, display, on_step, stop_asked)
        ended_well = False
        try:
            loop.run()
            ended_well = True
        finally:
            saver.close(ended_well)
        position = session.position
        if world.is_main:
            end = {"step": position.step, "epoch": position.epoch, "results": loop.results, "skipped": position.skipped}
            end["ending"] = loop.ending
            weights = tensors_digest(
                {k: v for k, v in session.model.state_dict().items() if isinstance(v, torch.Tensor)}
            )
            _write_manifest(run_dir, {**about, "ended": _now(), "end": end, "weights_digest": weights})
        return Summary(position.step, position.epoch, loop.results, run_dir, loop.ending)


def _journal(session: Session, run_dir: Path, resume: bool) -> Journal:
    """The numbers of this run. Those of steps that are done again go, also where the run starts anew in its folder."""
    again = resume or (run_dir / "metrics.jsonl").exists()
    position, board = session.position, session.config.log.tensorboard
    return Journal(run_dir, board, position.step if again else None, position.evaluated_at == position.step)


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def check_best(session: Session) -> None:
    """Refuse a `best.metric` that no evaluation will measure, before any time is spent on training.

    Raises:
        UserError: naming those that are measured.
    """
    metric, recipe = session.config.best.metric, session.recipe
    if metric is None:
        return
    if session.val is None:
        if session.world.is_main:
            log.warning("there is no validation set: best.metric=%s is never measured", metric)
        return
    known = ["val/loss", *(f"val/{name}" for name in recipe.metrics())]
    if not any(metric == name or metric.startswith(f"{name}/") for name in known):
        seen = f"best.metric={metric} is not measured"
        raise UserError(explain(seen, f"one of {', '.join(known)}", f"{type(recipe).__name__}.metrics()"))


def prepare_folder(run_dir: Path, config: Config, resume: bool) -> None:
    """Make the run's folder, try whether it can be written, and write the config of a new run.

    A resumed run keeps its own config until it is known that the checkpoint fits the new one.

    Raises:
        UserError: where it cannot be written.
    """
    try:
        for name in ("", "checkpoints", "logs"):
            (run_dir / name).mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=run_dir / name):
                pass
        if not resume:
            write_text(run_dir / "config.yaml", dump_config(config))
    except OSError as error:
        seen = f"the run's folder cannot be written: {error.strerror}"
        raise UserError(explain(seen, "a folder with write access", str(run_dir), "set run.dir=FOLDER")) from None


def _introduce(session: Session, run_dir: Path, launch: str, resumed: bool) -> dict[str, Any]:
    """Print the contract line and write the manifest; returns what both hold."""
    config, world, position = session.config, session.world, session.position
    line = session.plan.line(session.steps_per_epoch)
    about = describe(config, world, session.plan, session.precision, launch, line)
    about |= {"recipe": source_digest(session.recipe), "started": _now(), "parameters": _num_parameters(session.model)}
    if resumed:
        about["resumed_at"] = position.step
    if world.is_main:
        log.info(line)
        device = f"{world.device.type}, {session.precision.name}, threads per rank: {torch.get_num_threads()}"
        log.info("%s, %d parameters, %s", type(session.recipe).__name__, about["parameters"], device)
        if resumed:
            log.info(
                "resumed at step %d (epoch %d, %d samples in)", position.step, position.epoch + 1, position.consumed
            )
        _write(run_dir / "config.yaml", dump_config(config))
        _write_manifest(run_dir, about)
    return about


def _write_manifest(run_dir: Path, values: dict[str, Any]) -> None:
    _write(run_dir / "manifest.json", json.dumps(values, indent=2, default=str))


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        must, next_step = "room and write access", "free the disk, then resume"
        raise RunError(
            explain(f"{path.name} cannot be written: {error.strerror}", must, str(path), next_step)
        ) from None


def _num_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
