"""`lockstep train`: resolve the config, choose the run's folder, start the ranks."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lockstep.core.errors import Preempted, UserError, explain
from lockstep.core.files import in_use, reserve_folder
from lockstep.core.outcome import Exit
from lockstep.core.wish import Wish
from lockstep.runtime.config import Config, changes, dump_config, load_config

if TYPE_CHECKING:
    from lockstep.runtime.training import Summary
    from lockstep.runtime.world import World

RUNS = Path("runs")
_HELD = "the folder of a run"

Start = Literal["new", "resume", "either"]
"""`either`: go on with the run in the folder where it has saved, and start it where it has not."""


def train(
    config_path: Path | None,
    overrides: Sequence[str],
    wish: Wish,
    max_steps: int | None,
    resume: str | None,
    show_config: bool,
    either: bool = False,
    anomaly: bool = False,
) -> Exit:
    """Train as the config says.

    Args:
        config_path: a YAML file, None for the recipe's own defaults.
        overrides: `key=value` items.
        wish: ranks, machines, restarts. Without a number of ranks: all GPUs, or on a CPU at most 2.
        max_steps: optimizer steps to stop at this time; not a part of the run's config.
        resume: folder of a run to go on with; empty for the newest under `runs/`; None for a new run.
        show_config: print the resolved config and do nothing else.
        either: start the run in `run.dir`, or go on with it where it has saved.
        anomaly: search, on one process, for the first loss or gradient that is not finite. A run that is named by
            `resume` is where the search begins; it is left as it is.
    """
    if anomaly:
        wish = alone(wish, either)
    if either and resume is not None:
        seen, must = "both --resume and --resume-or-start", "--resume goes on with a run that is there"
        raise UserError(explain(seen, must, next_step="with --resume-or-start, run.dir=FOLDER names the run"))
    folder = None if resume is None else resumed_folder(resume)
    origin = folder if anomaly else None
    config = resolve(config_path, [*overrides, *_searching(overrides, folder)] if anomaly else overrides, folder)
    folder = None if anomaly else folder
    start: Start = "resume" if folder else "new"
    if either:
        start, folder = "either", lasting_folder(config)
    if show_config:
        limit = [] if max_steps is None else [f"stop.max_steps={max_steps}"]
        print(dump_config(resolve(config_path, [*overrides, *limit], None if either else folder)), end="")
        return Exit.DONE
    from lockstep.recipes.resolve import check_recipe_name
    from lockstep.runtime.world import launched

    check_recipe_name(config.recipe)
    held = folder / "config.yaml" if folder else Path()
    notes = changes(load_config(held, []), config) if held.is_file() else []
    if launched():
        from lockstep.launch import run_as_rank

        run_as_rank(train_rank, (config, folder, start, notes, "torchrun", max_steps, anomaly, origin))
    return _launch(config, folder, (start, notes, "lockstep train", max_steps, anomaly, origin), wish)


def alone(wish: Wish, either: bool) -> Wish:
    """The wish for one process, which a search for an anomaly runs on.

    Raises:
        UserError: where more were asked for, or a run that goes on by itself.
    """
    from lockstep.runtime.world import Place

    must = "one process, where every operation has its line"
    nproc = wish.nproc or Place.from_environment().num_ranks
    if nproc > 1 or (wish.num_nodes or 1) > 1:
        seen = f"--anomaly with {nproc} ranks" if nproc > 1 else f"--anomaly with {wish.num_nodes} machines"
        raise UserError(explain(seen, must, next_step="leave --nproc and --nnodes out"))
    if either:
        must = "a search begins anew, or where a run has saved"
        raise UserError(explain("both --anomaly and --resume-or-start", must, next_step="--anomaly --resume FOLDER"))
    return replace(wish, nproc=1, restarts=0)


def _searching(overrides: Sequence[str], folder: Path | None) -> list[str]:
    """What a search changes in the config: it stops at the first finding, and keeps nothing on its way."""
    elsewhere = ["run.dir=null"] if folder and not any(word.startswith("run.dir=") for word in overrides) else []
    return ["stop.nonfinite=stop", "checkpoint.every_epochs=null", "checkpoint.every_steps=null", *elsewhere]


def _launch(config: Config, folder: Path | None, rest: tuple[Any, ...], wish: Wish) -> Exit:
    # The ranks are forked from here and share what is imported by then.
    import lockstep.runtime.training  # noqa: F401
    from lockstep.launch import launch_local
    from lockstep.launch.facts import flat, versions
    from lockstep.launch.supervision import supervise
    from lockstep.launch.where import who_takes_part
    from lockstep.runtime.world import default_ranks

    nodes, nproc = who_takes_part(wish)
    # Of several machines, that of rank 0 names the folder for all, and for every restart.
    run_dir = folder or (new_run_dir(config) if nodes.node == 0 else None)
    facts = {**versions(), **flat(config.model_dump(mode="json"))}
    work_dir = run_dir or Path(config.run.dir or RUNS)
    try:
        with in_use(run_dir, _HELD) if run_dir is not None and nodes.node == 0 else nullcontext():
            return launch_local(
                train_rank,
                (config, run_dir, *rest),
                nproc or default_ranks(config.run.device),
                work_dir=work_dir,
                supervision=supervise(wish, nodes, facts, saves=True),
            )
    finally:
        with suppress(OSError):
            work_dir.rmdir()  # only where no rank has put anything there


def resolve(config_path: Path | None, overrides: Sequence[str], folder: Path | None) -> Config:
    """The config of a new run, or of a resumed one with its overrides."""
    if folder is None:
        return load_config(config_path, overrides)
    if config_path is not None:
        seen = f"both a config ({config_path}) and a run to resume ({folder})"
        must = "a resumed run keeps its own config.yaml"
        raise UserError(explain(seen, must, next_step="change single values with key=value"))
    return load_config(folder / "config.yaml", overrides)


def train_rank(
    config: Config,
    run_dir: Path | None,
    start: Start,
    notes: Sequence[str],
    launch: str,
    max_steps: int | None = None,
    anomaly: bool = False,
    origin: Path | None = None,
) -> None:
    """What every rank runs. Without a folder (torchrun), rank 0 names it for all.

    Raises:
        Preempted: where the ranks were asked to stop, and have saved.
    """
    from lockstep.runtime.stopping import stop_signals
    from lockstep.runtime.world import World

    run = config.run
    with stop_signals() as signalled, World.enter(run.device, run.threads, config.parallel.timeout_s) as world:
        _same_config(world, config)
        summary = _train(world, config, run_dir, start, notes, launch, max_steps, anomaly, origin, _either(signalled))
        if summary.ending == "preempted":
            # Rank 0 is the last to be ready, with its save. A rank that left before would end it.
            world.barrier()
    if summary.ending == "preempted":
        raise Preempted(
            f"Preempted after saving step {summary.step}: go on with"
            f" `{_bin_folder()}lockstep train --resume {summary.run_dir}`."
        )


def _train(
    world: "World",
    config: Config,
    run_dir: Path | None,
    start: Start,
    notes: Sequence[str],
    launch: str,
    max_steps: int | None,
    anomaly: bool,
    origin: Path | None,
    stop_asked: Callable[[], bool],
) -> "Summary":
    from lockstep.recipes.resolve import load_recipe
    from lockstep.runtime.logs import log, rank_logs
    from lockstep.runtime.training import fit, prepare_folder

    run_dir, resume, story = _agreed_start(world, config, run_dir, start)
    with ExitStack() as leaving:
        if world.is_main:
            if launch == "torchrun":
                leaving.enter_context(in_use(run_dir, _HELD))
            prepare_folder(run_dir, config, resume)
        world.barrier()
        leaving.enter_context(rank_logs(run_dir / "logs", world.rank, config.log.all_ranks))
        recipe = load_recipe(config.recipe, config.options)
        if world.is_main:
            log.info("run: %s", run_dir)
            for note in [*story, *(f"changed since the save: {note}" for note in notes)]:
                log.info(note)
        summary = fit(recipe, config, world, run_dir, resume, launch, max_steps, None, stop_asked, origin=origin)
        if world.is_main:
            _farewell(run_dir, summary, config.recipe.isidentifier())
        if world.is_main and anomaly:
            _nothing_found(summary)
    return summary


def _nothing_found(summary: "Summary") -> None:
    from lockstep.runtime.logs import log

    left_out = f"; {summary.skipped} were left out while the loss scale was looked for" if summary.skipped else ""
    log.info("nothing found: every loss and gradient up to step %d is finite%s", summary.step, left_out)


def _either(signalled: Callable[[], bool]) -> Callable[[], bool]:
    """Whether a signal came to this rank, or its launcher asks it to stop by a channel of its own."""
    from lockstep.launch import stop_asked

    return lambda: signalled() or stop_asked()


def _same_config(world: "World", config: Config) -> None:
    """Under torchrun each rank reads the config by itself, perhaps from another disk or at another moment."""
    from lockstep.core.digest import value_digest

    digests = world.gather(value_digest(config.model_dump(mode="json")))
    if len(set(digests)) > 1:
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        seen = f"ranks {', '.join(map(str, others))} have another config than rank 0"
        raise UserError(explain(seen, "one config for all ranks", next_step="name the config and the run's folder"))


def _agreed_start(world: "World", config: Config, run_dir: Path | None, start: Start) -> tuple[Path, bool, list[str]]:
    """The run's folder, whether to go on with what it has saved, and what to tell; rank 0 looks for all."""
    found: tuple[Path, bool, list[str]] | UserError | None = None
    if world.is_main:
        try:
            found = _start(config, run_dir, start)
        except UserError as error:
            found = error
    found = world.broadcast(found)
    if isinstance(found, UserError):
        raise found
    assert found is not None
    return found


def _start(config: Config, run_dir: Path | None, start: Start) -> tuple[Path, bool, list[str]]:
    from lockstep.runtime.state.checkpoint import step_of
    from lockstep.runtime.world import restarts

    number, most = restarts()
    again = number > 0 or start == "either"
    unnamed = run_dir is None and config.run.dir is None
    if run_dir is None:
        run_dir = Path(config.run.dir) if config.run.dir is not None and again else new_run_dir(config)
    checkpoints = saved(run_dir)
    resume = start == "resume" or (again and bool(checkpoints))
    if not number:
        return run_dir, resume, []
    begun = f"from step {step_of(checkpoints[0])}" if resume and checkpoints else "from the beginning"
    hint = ["the run before had no run.dir=FOLDER to be found by"] if unnamed else []
    return run_dir, resume, [f"restart {number} of {max(number, most)}: {begun}", *hint]


def saved(run_dir: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    from lockstep.runtime.state.checkpoint import listing

    return listing(run_dir / "checkpoints")


def lasting_folder(config: Config) -> Path:
    """The folder of a run that the same command starts and goes on with.

    Raises:
        UserError: where `run.dir` does not name it.
    """
    if config.run.dir is None:
        must = "the next start has to find the run again"
        raise UserError(explain("--resume-or-start without a folder", must, next_step="set run.dir=FOLDER"))
    return Path(config.run.dir)


def _farewell(run_dir: Path, summary: "Summary", packaged: bool) -> None:
    from lockstep.runtime.logs import log

    bin_folder = _bin_folder()
    log.info("%s at step %d; checkpoints: %s", summary.ending, summary.step, run_dir / "checkpoints")
    if summary.ending == "preempted":  # how to go on is the last word of the command
        return
    if (run_dir / "tensorboard").is_dir():
        log.info("TensorBoard: %stensorboard --logdir %s", bin_folder, run_dir / "tensorboard")
    more = " stop.epochs=N" if summary.ending == "done" else ""
    log.info("go on: %slockstep train --resume %s%s", bin_folder, run_dir, more)
    if packaged:
        log.info("your own model and data: %slockstep init DIR", bin_folder)


def _bin_folder() -> str:
    """What to type before a command: nothing where the shell finds it, else the folder that this one was called in."""
    called = Path(sys.argv[0])
    found = called.name != "lockstep" or shutil.which("lockstep") or not called.parent.parts
    return "" if found else f"{called.parent}/"


def new_run_dir(config: Config) -> Path:
    """The folder of a new run.

    Raises:
        UserError: where `run.dir` names one that holds a run already.
    """
    if config.run.dir is not None:
        folder = Path(config.run.dir)
        saved_some = any((folder / "checkpoints").glob("step-*"))
        # Its numbers are made with its first record: a run that failed before has left nothing that could be lost.
        if saved_some or ((folder / "metrics.jsonl").is_file() and (folder / "metrics.jsonl").stat().st_size):
            must = "a new run gets a folder of its own"
            next_step = f"resume it with `lockstep train --resume {folder}`, or name another"
            if not saved_some:
                next_step = "it has saved nothing: remove it, or name another"
            raise UserError(explain(f"run.dir={folder} holds a run already", must, next_step=next_step))
        return folder
    name = config.recipe.rpartition(":")[2].removesuffix(".py").rpartition("/")[2]
    return reserve_folder(RUNS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}", "run.dir=FOLDER")


def resumed_folder(text: str) -> Path:
    """The folder of the run to resume.

    Raises:
        UserError: where there is no such run.
    """
    if text:
        folder = Path(text)
        if not (folder / "config.yaml").is_file():
            raise UserError(explain(f"{folder} is not the folder of a run", "it holds config.yaml", "--resume"))
        return folder
    runs = [path.parent for path in RUNS.glob("*/config.yaml")]
    if not runs:
        raise UserError(explain(f"no run under {RUNS}/", "a run to resume", "--resume", "name its folder"))
    return max(runs, key=lambda run: _started(run))


def _started(run: Path) -> str:
    try:
        return str(json.loads((run / "manifest.json").read_text(encoding="utf-8"))["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
