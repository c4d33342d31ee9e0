"""`lockstep run`: start a script on N ranks of this machine; with --record, keep what every rank did."""

import os
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.core.outcome import Exit


def run(
    script: Path,
    argv: tuple[str, ...],
    nproc: int | None,
    record: Path | None,
    steps: int | None,
    nodes: bool = False,
) -> Exit:
    """Start the script and wait for its end.

    Args:
        script: a Python file. argv: its arguments.
        nproc: ranks; None for all GPUs, or on a CPU at most 2. 1 starts it as `python script.py`.
        record: folder for the trace; made if absent. None to record nothing.
        steps: stop after so many optimizer steps; None for never.
        nodes: every rank is told that it is alone on a node of its own, which shows who writes once a node.
    """
    check_script(script)
    if record is None:
        raise UserError(explain("no --record", "a folder for the trace", next_step="lockstep run --record DIR SCRIPT"))
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
