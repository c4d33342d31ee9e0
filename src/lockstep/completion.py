"""`lockstep completion`: the few lines that make a shell ask `lockstep __complete WORD...` what may come next."""

from importlib import resources

from lockstep.core.errors import UserError, explain

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """The lines for a shell.

    Args:
        shell: one of `SHELLS`.

    Raises:
        UserError: any other.
    """
    if shell not in SHELLS:
        raise UserError(explain(f"no completion for {shell}", f"one of {', '.join(SHELLS)}"))
    return resources.files("lockstep").joinpath("templates/completion", shell).read_text(encoding="utf-8")
