"""`lockstep verify`: prove that a distributed program is the training that one process does. Callable: `lockstep.verify`."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.core.errors import UserError, explain
from lockstep.core.proof import Proof, Rung
from lockstep.run import check_script


def verify(
    program: str | Path,
    args: Sequence[str] = (),
    *,
    against: str | Path | None = None,
    against_args: Sequence[str] | None = None,
    num_ranks: int = 2,
    steps: int = 8,
    accept: Sequence[str] = (),
    all_rungs: bool = False,
    resume_args: Sequence[str] | None = None,
    timeout_s: float = 60.0,
    spawns: bool = False,
    cwd: str | Path | None = None,
    told: Callable[[Rung], None] | None = None,
) -> Proof:
    """Run a training script in several manners and compare: is it on N ranks the training that one process does?

    Args:
        program: the distributed script; it is not changed, and runs in copies of the working directory.
        args: its arguments.
        against: the single-process script that it must equal; None: the program itself as one process.
        against_args: its arguments; None: the same.
        num_ranks: CPU processes of the distributed runs.
        steps: optimizer steps that are compared.
        accept: codes of deviations that are declared (`LS116`: BatchNorm over a rank's own samples).
        all_rungs: go on after the first broken rung.
        resume_args: arguments that make a fresh process go on from what an earlier one saved; None: not judged.
        timeout_s: seconds that one run of the program may last.
        spawns: the program starts its ranks itself (torch.multiprocessing.spawn).
        cwd: working directory of the program; None: this process's.
        told: called with each rung as it ends.

    Returns: the proof: its rungs, what each established, what broke first and why. `proof.exit` is 0 where it holds.

    Raises:
        UserError: a script that is not there, no Python file, a number out of its range.
    """
    program = Path(program)
    check_script(program)
    if against is not None:
        check_script(Path(against))
    _check(num_ranks, steps, accept, timeout_s)
    from lockstep.proof.prove import prove
    from lockstep.proof.question import Question
    from lockstep.proof.takes import Settings
    from lockstep.trace.script import Program

    folder = Path(cwd or Path.cwd()).resolve()
    mine = Program(program.resolve(), tuple(args), folder)
    original = None
    if against is not None or against_args is not None:
        other = tuple(args if against_args is None else against_args)
        original = Program(Path(against or program).resolve(), other, folder)
    question = Question(
        mine,
        original,
        Settings(num_ranks, steps, timeout_s, spawns),
        tuple(accept),
        all_rungs,
        None if resume_args is None else tuple(resume_args),
    )
    return prove(question, told or (lambda rung: None))


def _check(num_ranks: int, steps: int, accept: Sequence[str], timeout_s: float) -> None:
    if num_ranks < 2:
        raise UserError(explain(f"num_ranks = {num_ranks}", "at least 2: one process is the reference"))
    if steps < 1:
        raise UserError(explain(f"steps = {steps}", "at least 1"))
    if timeout_s <= 0:
        raise UserError(explain(f"timeout_s = {timeout_s}", "seconds, more than 0"))
    for code in accept:
        if not (len(code) == 5 and code.startswith("LS") and code[2:].isdecimal()):
            raise UserError(explain(f"accept {code}", "the code of a deviation, as LS116"))


def words(text: str | None) -> list[str] | None:
    """Arguments in one string, as a shell splits them.

    Raises:
        UserError: a quote that is not closed.
    """
    if text is None:
        return None
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(explain(f"{text!r}: {error}", "arguments as a shell reads them")) from None


class _Callable(ModuleType):
    """`lockstep.verify` is this module, and `lockstep.verify(...)` calls its function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Proof:
        return verify(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
