"""How a command ends: the exit codes that scripts and schedulers may rely on."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of every `lockstep` command.

    DONE: done or passed. FAILED: the run failed, or a rule found an error. MISUSE: the user's mistake.
    UNJUDGED: nothing failed, but something could not be judged. PREEMPTED: stopped after saving.
    INTERRUPTED: stopped by Ctrl-C.
    """

    DONE = 0
    FAILED = 1
    MISUSE = 2
    UNJUDGED = 3
    PREEMPTED = 75
    INTERRUPTED = 130
