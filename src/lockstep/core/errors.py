"""Errors that reach a user: what was seen, what must hold, where, and what to do next."""

from lockstep.core.outcome import Exit


class LockstepError(Exception):
    """A failure that is explained to the user without a traceback of ours.

    The whole message is one string, so that it survives pickling and DataLoader workers, which rebuild an
    exception from its text alone. Build it with `explain`.
    """

    exit_code: Exit = Exit.FAILED


class UserError(LockstepError, ValueError):
    """The user's mistake: exit code 2."""

    exit_code = Exit.MISUSE


class Preempted(LockstepError):  # noqa: N818  # it is no error
    """Asked to stop, and stopped after saving: exit code 75. No failure, and no word for one."""

    exit_code = Exit.PREEMPTED


class RunError(LockstepError, RuntimeError):
    """The run failed for a reason that we can name: exit code 1."""


def explain(seen: str, must: str = "", where: str = "", next_step: str = "") -> str:
    """One message of four parts, empty parts left out.

    Args:
        seen: what was found, with its value.
        must: what has to hold instead.
        where: file, key, rank or step.
        next_step: what the user can do now.
    """
    parts = [seen.rstrip(".") + "."]
    parts += [
        f"  {label}: {text}" for label, text in (("Must hold", must), ("Where", where), ("Next", next_step)) if text
    ]
    return "\n".join(parts)
