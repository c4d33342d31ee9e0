"""Train one recipe on the ranks of a world: the run's folder, its logs, its session and its loop."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from lockstep.core.errors import LockstepError, RunError, UserError, explain
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
from lockstep.runtime.trackers import About, Tracker
from lockstep.runtime.trackers.choose import check_trackers, couriers
from lockstep.runtime.trackers.flat import flat
from lockstep.runtime.trackers.tensor_board import tensorboard_wanted
from lockstep.runtime.world import World, restarts

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
        skipped: steps that were left out, for a loss or gradient that was not finite.
    """

    step: int
    epoch: int
    results: dict[str, float]
    run_dir: Path
    ending: str
    skipped: int = 0


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
    trackers: Sequence[Tracker] | None = None,
    origin: Path | None = None,
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
        trackers: of your own, beside those of the config; rank 0 uses them. None for those of the recipe.
        origin: folder of another run, whose newest whole checkpoint a new run begins at.
    """
    if trackers is None:
        trackers = recipe.trackers() if world.is_main else ()
    check_trackers(config, trackers)
    checkpoints = run_dir / "checkpoints"
    if world.is_main:
        prepare_folder(run_dir, config, resume)
    with ExitStack() as leaving:
        leaving.enter_context(_deterministic(config.run.deterministic))
        begun = checkpoints if resume else origin and origin / "checkpoints"
        session = build_session(recipe, config, world, begun, max_steps, stop_asked)
        leaving.callback(session.replica.close)
        check_metrics(recipe)
        check_best(session)
        about = _introduce(session, run_dir, launch, resume)
        saver = Saver(checkpoints, config.checkpoint, about, world.is_main, session.state.fellows)
        saver.saved = session.position if resume else None
        journal = _journal(session, run_dir, resume, about, trackers)
        display = Display(session.total_steps, session.position.step, config.log.progress, world.is_main)
        loop = Loop(session, saver, journal, display, on_step, stop_asked)
        if journal is not None:
            leaving.push(partial(_close, journal, loop))
        leaving.callback(display.close)
        ended_well = False
        try:
            loop.run()
            ended_well = True
        finally:
            saver.close(ended_well)
        position, digest = session.position, _weights_digest(session)
        if world.is_main:
            end = {"step": position.step, "epoch": position.epoch, "results": loop.results, "skipped": position.skipped}
            end["ending"] = loop.ending
            _write_manifest(run_dir, {**about, "ended": _now(), "end": end, "weights_digest": digest})
        return Summary(position.step, position.epoch, loop.results, run_dir, loop.ending, position.skipped)


def _journal(
    session: Session, run_dir: Path, resume: bool, about: dict[str, Any], own: Sequence[Tracker]
) -> Journal | None:
    """The journal on rank 0, its trackers begun. Where one cannot be, every rank raises that."""
    journal: Journal | None = None
    failed: LockstepError | None = None
    if session.world.is_main:
        try:
            journal = _begun_journal(session, run_dir, resume, about, own)
        except LockstepError as error:
            failed = error
    failed = session.world.broadcast(failed)
    if failed is not None:
        raise failed
    return journal


def _begun_journal(
    session: Session, run_dir: Path, resume: bool, about: dict[str, Any], own: Sequence[Tracker]
) -> Journal:
    """The numbers of this run. Those of steps that are done again go, also where the run starts anew in its folder."""
    config, position = session.config, session.position
    again = resume or (run_dir / "metrics.jsonl").exists()
    ways = couriers(config, own, run_dir, go_on=resume or restarts()[0] > 0)
    board = tensorboard_wanted(config.log.tensorboard)
    evaluated = position.evaluated_at == position.step
    journal = Journal(run_dir, board, ways, position.step if again else None, evaluated)
    facts = flat({name: value for name, value in about.items() if name not in ("config", "argv")})
    settings = flat(config.model_dump(mode="json"))
    name = config.log.name or run_dir.resolve().name
    journal.begin(About(name, run_dir, settings, facts, resumed_at=position.step if resume else None))
    return journal


def _close(journal: Journal, loop: Loop, failed: type[BaseException] | None, *_: object) -> None:
    journal.close(loop.ending if failed is None else "failed", loop.results)


def _weights_digest(session: Session) -> str:
    """The digest of the final weights, on rank 0; shards are put together by all ranks."""
    if not session.world.is_main and not session.replica.paired:
        return ""
    state = session.model.state_dict()
    return tensors_digest({name: value for name, value in state.items() if isinstance(value, torch.Tensor)})


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
    line = session.contract
    about = describe(config, world, session.plan, session.precision, launch, line)
    about |= {"recipe": source_digest(session.recipe), "started": _now(), "parameters": _num_parameters(session.model)}
    about["steps_per_epoch"] = session.steps_per_epoch
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
