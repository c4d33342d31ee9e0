"""The distributed set-up: which of N ranks this process is, on which device, and what one rank does for all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from lockstep.runtime import Config, World, stop_signals


@contextmanager
def join(config: Config) -> Iterator[tuple[World, Callable[[], bool]]]:
    """Join the other ranks. A launcher's environment says who they are; without one, this is the only rank.

    Yields: the world (`rank`, `num_ranks`, `device`, `is_main`), and a function that says whether this rank was asked
        to stop (SIGTERM).
    """
    run = config.run
    with stop_signals() as asked, World.enter(run.device, run.threads, config.parallel.timeout_s) as world:
        yield world, asked
        world.barrier()  # rank 0 writes the last files: nobody leaves before it has


def run_folder(world: World, config: Config) -> tuple[Path, bool]:
    """The folder of this run, and whether it holds something to go on with; rank 0 looks, all get its answer."""
    folder = Path(config.run.dir or f"runs/shapes-{datetime.now():%Y%m%d-%H%M%S}")
    saved = any((folder / "checkpoints").glob("step-*"))
    return world.broadcast((folder, saved))
