"""The hooks: what torch and Python are made to tell while a script runs. Each file has one `install`."""

from lockstep.trace.feed import Feed
from lockstep.trace.hooks import (
    collectives,
    data,
    files,
    models,
    optimizers,
    output,
    randomness,
    schedules,
    spawn,
    workers,
)
from lockstep.trace.recorder import Recorder


def install(recorder: Recorder, feed: Feed | None = None) -> None:
    """Hook everything, once a process, before the script is run."""
    randomness.install(recorder)
    data.install(recorder, feed)
    optimizers.install(recorder, models.install(recorder))
    for hook in (workers, collectives, schedules, files, output, spawn):
        hook.install(recorder)
