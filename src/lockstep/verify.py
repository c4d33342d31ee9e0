"""`lockstep verify`: prove that a distributed program is the training that one process does. Also a function."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from lockstep import __version__
from lockstep.core.errors import RunError, UserError, explain
from lockstep.core.files import put_text
from lockstep.core.outcome import Exit
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
    options = {
        "against": against,
        "against_args": against_args,
        "num_ranks": num_ranks,
        "steps": steps,
        "accept": accept,
        "all_rungs": all_rungs,
        "resume_args": resume_args,
        "timeout_s": timeout_s,
        "spawns": spawns,
    }
    folder = _checked(Path(program), args, options, cwd)
    if "torch" in sys.modules:
        # Ranks are forked, and a process that may have used torch before must not be.
        return _apart([str(Path(program).resolve()), *_typed(options), "--", *args], folder, told)
    return _here(Path(program), args, options, folder, told)


def _checked(program: Path, args: Sequence[str], options: Mapping[str, Any], cwd: str | Path | None) -> Path:
    """The folder to run in, where all the rest is right too."""
    check_script(program)
    if options["against"] is not None:
        check_script(Path(options["against"]))
    _check_words(args, options["against_args"] or (), options["accept"], options["resume_args"] or ())
    _check(options["num_ranks"], options["steps"], options["accept"], options["timeout_s"])
    return _working_folder(cwd)


def _here(
    program: Path,
    args: Sequence[str],
    options: Mapping[str, Any],
    folder: Path,
    told: Callable[[Rung], None] | None,
) -> Proof:
    """In this process, which has not used torch."""
    from lockstep.proof.prove import prove
    from lockstep.proof.question import Question
    from lockstep.proof.takes import QUIET_S, Settings
    from lockstep.trace.script import Program

    limit_s: float = options["timeout_s"]
    against, against_args, resume_args = options["against"], options["against_args"], options["resume_args"]
    original = None
    if against is not None or against_args is not None:
        other = tuple(args if against_args is None else against_args)
        original = Program(Path(against or program).resolve(), other, folder)
    question = Question(
        Program(program.resolve(), tuple(args), folder),
        original,
        Settings(options["num_ranks"], options["steps"], limit_s, options["spawns"], max(QUIET_S, limit_s / 2)),
        tuple(options["accept"]),
        options["all_rungs"],
        None if resume_args is None else tuple(resume_args),
    )
    return prove(question, told or (lambda rung: None))


def _typed(options: Mapping[str, Any]) -> list[str]:
    """The same on the command line."""
    found = ["--nproc", str(options["num_ranks"]), "--steps", str(options["steps"])]
    found += ["--timeout", str(options["timeout_s"])]
    if options["against"] is not None:
        found += ["--against", str(Path(options["against"]).resolve())]
    for name in ("against_args", "resume_args"):
        if options[name] is not None:
            found.append(f"--{name.replace('_', '-')}={shlex.join(options[name])}")
    found += [word for code in options["accept"] for word in ("--accept", code)]
    return found + ["--all"] * options["all_rungs"] + ["--spawns"] * options["spawns"]


def _apart(argv: list[str], folder: Path, told: Callable[[Rung], None] | None) -> Proof:
    """In a process of its own."""
    from lockstep.core.report.as_json import from_json

    with TemporaryDirectory() as place:
        written = Path(place, "proof.json")
        command = [sys.executable, "-m", "lockstep", "verify", "--json", str(written), *argv]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode == Exit.MISUSE:
            raise UserError(done.stderr.strip())
        if not written.exists():
            raise RunError(explain("the proof did not come to its end", next_step=done.stderr.strip()[-2000:]))
        proof = from_json(written.read_text(encoding="utf-8"))
    for rung in proof.rungs:
        if told is not None:
            told(rung)
    return proof


def _working_folder(cwd: str | Path | None) -> Path:
    try:
        folder = Path(cwd or Path.cwd()).resolve()
    except FileNotFoundError:
        raise UserError(explain("the current folder has been removed", next_step="go to one that is there")) from None
    if not folder.is_dir():
        raise UserError(explain(f"{folder} is not there", "the folder to run in", "cwd"))
    return folder


def _check_words(*several: Sequence[str]) -> None:
    """One text is a sequence of letters, and never meant as one."""
    for words in several:
        if isinstance(words, str):
            raise UserError(explain(f"{words!r} is one text", f"a list of words: {words.split()!r}"))


def _check(num_ranks: int, steps: int, accept: Sequence[str], timeout_s: float) -> None:
    if num_ranks < 2:
        raise UserError(explain(f"num_ranks = {num_ranks}", "at least 2: one process is the reference"))
    if steps < 1:
        raise UserError(explain(f"steps = {steps}", "at least 1"))
    if not timeout_s > 0:  # nan too
        raise UserError(explain(f"timeout_s = {timeout_s}", "seconds, more than 0"))
    for code in accept:
        if not (len(code) == 5 and code.startswith("LS") and code[2:].isdecimal()):
            raise UserError(explain(f"accept {code}", "the code of a deviation, as LS116"))


@dataclass(frozen=True)
class Reports:
    """Files that the proof is written to; None for not."""

    html: Path | None = None
    json: Path | None = None
    sarif: Path | None = None


def command(program: str, args: Sequence[str], options: Mapping[str, Any], compare: bool, reports: Reports) -> Exit:
    """`lockstep verify` in the shell: choose what is proven, say how it goes, write the reports."""
    for path in (reports.html, reports.json, reports.sarif):
        if path is not None:
            _check_report(path)
    told = _progress()
    if compare:
        if len(args) != 1:
            raise UserError(explain(f"--compare with {1 + len(args)} runs", "two: --compare RUN RUN"))
        from lockstep.proof.compare_runs import compare_runs

        proof = compare_runs(Path(program), Path(args[0]), tuple(options["accept"]))
    elif program.endswith((".yaml", ".yml")) or ("=" in program and not Path(program).is_file()):
        proof = _recipe(program, args, options, told)
    else:
        folder = _checked(Path(program), args, options, None)
        proof = _here(Path(program), args, options, folder, told)
    assert isinstance(proof, Proof)
    _write(proof, reports)
    print(_text(proof, reports))
    return proof.exit


def _check_report(path: Path) -> None:
    """Before minutes are spent on what could not be written."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(explain(f"{path.parent} is not there", "a folder for the report", next_step="make it first"))
    if path.is_dir():
        raise UserError(explain(f"{path} is a folder", "the name of a file for the report"))
    if not os.access(folder, os.W_OK):
        raise UserError(explain(f"{folder} may not be written to", "a folder for the report"))


def _recipe(program: str, args: Sequence[str], options: Mapping[str, Any], told: Callable[[Rung], None]) -> Proof:
    for name in ("against", "against_args", "resume_args"):
        if options[name] is not None:
            flag = "--" + name.replace("_", "-")
            raise UserError(explain(f"{flag} with a recipe", "a recipe is its own reference, and resumes by itself"))
    _check(options["num_ranks"], options["steps"], options["accept"], options["timeout_s"])
    from lockstep.proof.recipe import prove_recipe
    from lockstep.proof.takes import Settings

    path, overrides = (None, [program, *args]) if "=" in program else (Path(program), list(args))
    settings = Settings(options["num_ranks"], options["steps"], options["timeout_s"])
    return prove_recipe(path, overrides, settings, tuple(options["accept"]), options["all_rungs"], told)


def _progress() -> Callable[[Rung], None]:
    """Each rung on the screen as it ends, where somebody looks; the report comes after."""
    if not sys.stderr.isatty():
        return lambda rung: None
    return lambda rung: print(f"{rung.status:<8} {rung.name} ({rung.seconds:.1f} s)", file=sys.stderr)


def _text(proof: Proof, reports: Reports) -> str:
    from lockstep.core.report.text import text

    written = [str(path) for path in (reports.html, reports.json, reports.sarif) if path is not None]
    more = f"all of it: {', '.join(written)}" if written else "--html FILE or --json FILE writes all of it"
    return text(proof, colour=sys.stdout.isatty(), root=str(Path.cwd()), more=more)


def _write(proof: Proof, reports: Reports) -> None:
    from lockstep.core.report.as_json import to_json
    from lockstep.core.report.html import html
    from lockstep.core.report.sarif import sarif
    from lockstep.proof.codes import PAGES
    from lockstep.rules.pages import pages

    every = {**pages(), **PAGES}
    root = str(Path.cwd())
    makers: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (reports.html, lambda: html(proof, every, root)),
        (reports.json, lambda: to_json(proof)),
        (reports.sarif, lambda: sarif(proof, every, root, __version__)),
    )
    for path, make in makers:
        if path is not None:
            try:
                put_text(path, make())
            except OSError as error:
                raise UserError(explain(f"{path} cannot be written: {error.strerror}")) from None


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
