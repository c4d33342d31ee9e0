"""`lockstep run`: start a script on N ranks of one machine or many; with --record, keep what every rank did."""

import os
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.core.files import reserve_folder
from lockstep.core.outcome import Exit
from lockstep.core.wish import Wish

RUNS = Path("runs")


def run(script: Path, argv: tuple[str, ...], wish: Wish) -> Exit:
    """Start the script on every rank, watch over it, and wait for its end.

    Args:
        script: a Python file. argv: its arguments.
        wish: ranks, machines, restarts. Without a number of ranks: all GPUs, or on a CPU at most 2.

    Returns: DONE when every rank came to the end of the script; PREEMPTED when it ended by itself after a signal that
        it handles.

    Raises:
        UserError: no such script, or wishes that do not fit together.
    """
    check_script(script)
    from lockstep.launch import launch_local
    from lockstep.launch.facts import versions
    from lockstep.launch.plain import plain_rank
    from lockstep.launch.supervision import supervise
    from lockstep.launch.where import who_takes_part
    from lockstep.runtime.world import default_ranks
    from lockstep.trace.script import Program

    nodes, nproc = who_takes_part(wish)
    ranks = nproc or default_ranks("auto")
    work_dir = wish.log_dir or reserve_folder(RUNS / f"{script.stem}-{datetime.now():%Y%m%d-%H%M%S}", "--log-dir DIR")
    folder = wish.log_dir or work_dir / "logs"
    source = blake2b(script.read_bytes(), digest_size=8).hexdigest()
    supervision = supervise(wish, nodes, {**versions(), f"text of {script.name}": source}, folder)
    program = Program(script.absolute(), argv, Path.cwd())
    return launch_local(plain_rank, (program,), ranks, work_dir=work_dir, supervision=supervision)


def record_run(
    script: Path, argv: tuple[str, ...], nproc: int | None, record: Path, steps: int | None, nodes: bool = False
) -> Exit:
    """Start the script and keep what every rank did.

    Args:
        script: a Python file. argv: its arguments.
        nproc: ranks; None for all GPUs, or on a CPU at most 2. 1 starts it as `python script.py`.
        record: folder for the trace; made if absent.
        steps: stop after so many optimizer steps; None for never.
        nodes: every rank is told that it is alone on a node of its own, which shows who writes once a node.
    """
    check_script(script)
    prepare_folder(record)
    from lockstep.launch import launch_local
    from lockstep.launch.script import Manner, script_rank
    from lockstep.runtime.world import default_ranks
    from lockstep.trace.recorder import Plan
    from lockstep.trace.script import Program

    ranks = nproc or default_ranks("auto")
    program = Program(script.resolve(), argv, Path.cwd())
    manner = Manner(single=ranks == 1, nodes=nodes)
    plan = Plan(record.resolve(), steps=steps)
    return launch_local(script_rank, (program, plan, None, manner), ranks, work_dir=record)


def check_script(script: Path) -> None:
    """Raises a UserError where there is no such file, it is no Python, or it may not be read."""
    try:
        there, folder = script.is_file(), script.is_dir()
    except OSError as error:  # a name that is too long, a folder that only others may look into
        raise UserError(explain(f"{str(script)[:200]} cannot be opened: {error.strerror}", "a Python file")) from None
    if folder:
        raise UserError(explain(f"{script} is a folder", "a Python file", next_step="name the script in it"))
    if not there:
        raise UserError(explain(f"{script} is not there", "a Python file", next_step="check the path"))
    if script.suffix != ".py":
        raise UserError(explain(f"{script} is no Python file", "its name ends in .py"))
    if not os.access(script, os.R_OK):
        raise UserError(explain(f"{script} may not be read", "a Python file", next_step="check its permissions"))


def prepare_folder(folder: Path) -> None:
    """Make the trace's folder; an older trace in it goes away, anything else is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("rank-*.jsonl"), *folder.glob("rank-*.tensors"), *folder.glob("launcher.jsonl")]:
            old.unlink()
    except OSError as error:
        seen = f"{folder} cannot be used: {error.strerror}"
        raise UserError(explain(seen, "a folder with write access", "--record")) from None
