"""What a job is and what it asks for, the same for every scheduler."""

import re
from dataclasses import dataclass

from lockstep.core.errors import UserError, explain

_TIME = re.compile(r"\d+|\d+:\d{1,2}|\d+:\d{1,2}:\d{1,2}|\d+-\d{1,2}(:\d{1,2}){0,2}")


@dataclass(frozen=True)
class Program:
    """What every launcher of the job runs.

    verb: `train` or `run`. words: what follows it, without the number of ranks. config: for `train` the whole resolved
    config, which travels with the job, so that later changes of the file do not reach a job that waits. run_dir: the
    folder that is the same at every start of the job.
    """

    verb: str
    words: tuple[str, ...]
    run_dir: str
    config: str = ""


@dataclass(frozen=True)
class Wants:
    """What the job asks the cluster for.

    nodes: machines. ranks: processes on each of them; None for one a GPU. gpus: on each node. cpus: cores on each node,
    None for what the scheduler gives. restarts: how often the launchers start the ranks again after a failure. name: of
    the job.
    """

    name: str
    nodes: int = 1
    gpus: int = 0
    ranks: int | None = None
    cpus: int | None = None
    restarts: int = 0

    @property
    def ranks_per_node(self) -> int:
        """How many processes train on each node."""
        return self.ranks or self.gpus or 1


def check_time(text: str) -> str:
    """The time limit as Slurm reads it: minutes, `H:MM:SS`, `D-HH:MM:SS`.

    Raises:
        UserError: where it is none, or nothing.
    """
    if not _TIME.fullmatch(text) or not re.search("[1-9]", text):
        raise UserError(explain(f"--time {text}", "minutes, HOURS:MM:SS or DAYS-HH:MM:SS", next_step="--time 01:30:00"))
    return text


def seconds_of(time: str) -> int:
    """A time limit that `check_time` has let through, in seconds."""
    days, _, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    # Slurm: with days, hours come first; without, one number is minutes, and two are minutes and seconds.
    if days or len(parts) == 3:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def check_signal(signal_s: int, time: str) -> None:
    """Whether a job that is told to save `signal_s` before its end has trained for some time by then.

    Raises:
        UserError: where the signal would come in its first half: it would be requeued again and again.
    """
    if time and 2 * signal_s > seconds_of(time):
        seen = f"--signal-s {signal_s} with --time {time}"
        must = "the job trains for at least half of its time before it is told to save"
        smaller = max(1, seconds_of(time) // 4)
        raise UserError(explain(seen, must, next_step=f"--signal-s {smaller}, or a longer --time"))


def check_name(text: str) -> str:
    """A job's name that every scheduler takes.

    Raises:
        UserError: where one would not.
    """
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", text):
        must = "at most 40 small letters, digits and `-`, first a letter, last no `-`"
        raise UserError(explain(f"--name {text}", must, next_step="--name my-run-1"))
    return text


def name_from(text: str) -> str:
    """A permitted name made of any text: `My_Run.py` gives `my-run-py`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")[:40].strip("-")
    return name or "lockstep"
