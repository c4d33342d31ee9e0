"""A user's script as one of N ranks, as torchrun would run it."""

import os
import runpy
import sys
from typing import Any

import torch

from lockstep.launch.frames import where_of
from lockstep.trace.script import Program

_globals: list[dict[str, Any]] = []


def plain_rank(program: Program) -> str:
    """Run the script from its first line to its last in this process.

    Returns: the line that ended it by `sys.exit(0)`, else "".

    Raises:
        whatever the script raises, and SystemExit with a code other than 0.
    """
    if int(os.environ["WORLD_SIZE"]) > 1:
        # As torchrun does: the ranks share the cores, and a script may set what it likes.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))
    os.chdir(program.cwd)
    sys.argv = [str(program.script), *program.argv]
    sys.path[0:1] = [str(program.script.resolve().parent)]
    try:
        # A wrapper that is destroyed after its process group can hang or abort: it lives as long as the process.
        _globals.append(runpy.run_path(str(program.script), run_name="__main__"))
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise
        return where_of(leave)
    return ""
