"""`lockstep verify` on a program, as a command of its own, and the proof that it wrote."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lockstep.core.proof import Proof, Rung, Status
from lockstep.core.report.as_json import from_json
from tests.commands import Done, lockstep
from tests.programs.catalog import Program


@dataclass(frozen=True)
class Proven:
    """How the command ended, and what it wrote; proof is None where it wrote none."""

    done: Done
    proof: Proof | None

    def rung(self, name: str) -> Rung:
        """The rung of this name."""
        assert self.proof is not None, self.done.output
        return next(rung for rung in self.proof.rungs if rung.name == name)

    def codes(self, *severities: str) -> set[str]:
        """Codes of the findings of these severities, all where none is named."""
        assert self.proof is not None, self.done.output
        return {one.code for one in self.proof.findings if not severities or one.severity in severities}

    def broken(self) -> list[str]:
        """Names of the rungs that failed or did not run."""
        assert self.proof is not None, self.done.output
        return [rung.name for rung in self.proof.rungs if rung.status in (Status.FAIL, Status.ERROR)]


def prove(folder: Path, script: Path, *argv: str, timeout_s: float = 240) -> Proven:
    """Run `lockstep verify` on a copy of the script and of what lies beside it.

    Args:
        folder: an empty one. script: a Python file. argv: all that stands behind it on the command line.
    """
    home = folder / script.parent.name
    if not home.exists():
        shutil.copytree(script.parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    written = folder / "proof.json"
    written.unlink(missing_ok=True)
    options, arguments = _cut(argv)
    done = lockstep(home, "verify", script.name, "--json", str(written), *options, *arguments, timeout_s=timeout_s)
    return Proven(done, from_json(written.read_text(encoding="utf-8")) if written.exists() else None)


def prove_program(folder: Path, program: Program, *options: str, timeout_s: float = 240) -> Proven:
    """The same for a program of the catalog, launched and compared as it says."""
    more = list(options)
    if program.launch == "spawn":
        more.append("--spawns")
    more += [word for code in program.accept for word in ("--accept", code)]
    if program.reference:
        more += ["--against", program.reference_path.name]
    if program.reference_args:
        more += ["--against-args", " ".join(program.reference_args)]
    return prove(folder, program.path, *more, *(["--", *program.args] if program.args else []), timeout_s=timeout_s)


def _cut(argv: tuple[str, ...]) -> tuple[list[str], list[str]]:
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at:])
