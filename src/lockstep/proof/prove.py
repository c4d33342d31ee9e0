"""From a question to a proof."""

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from lockstep.core.digest import file_digest
from lockstep.core.proof import Proof, Rung
from lockstep.proof.ladder import climb
from lockstep.proof.partition import shares
from lockstep.proof.pictures import curves, timeline
from lockstep.proof.question import Question, Stage
from lockstep.proof.takes import open_studio


def prove(question: Question, told: Callable[[Rung], None] = lambda rung: None) -> Proof:
    """Climb the ladder.

    Args:
        question: what is to be proven.
        told: called with each rung as it ends.
    """
    began = time.monotonic()
    rungs = []
    with open_studio(question.settings) as studio:
        stage = Stage(question, studio)
        for rung in climb(stage):
            rungs.append(rung)
            told(rung)
        made = {take.name: take for take in studio.takes}
        plain = made.get("two processes")
        return Proof(
            program=str(question.program),
            reference=str(question.original) + (" (one process)" if question.reference is None else ""),
            num_ranks=question.settings.num_ranks,
            rungs=tuple(rungs),
            accepted=question.accept,
            curves=curves(made),
            shares=shares(plain.trace)[:8] if plain is not None else (),
            timeline=timeline(plain.trace, rungs) if plain is not None else (),
            digests=_digests(question),
            sources=sources(rungs),
            seconds=time.monotonic() - began,
        )


def _digests(question: Question) -> dict[str, str]:
    argv = "\0".join([*question.program.argv, "|", *question.original.argv])
    return {
        "program": file_digest(question.program.script),
        "reference": file_digest(question.original.script),
        "arguments": hashlib.sha256(argv.encode()).hexdigest(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


def sources(rungs: list[Rung]) -> dict[str, str]:
    """Text of the files that findings and differences point into."""
    places = [one.place for rung in rungs for one in rung.differences]
    places += [witness.place for rung in rungs for finding in rung.findings for witness in finding.witnesses]
    found = {}
    for place in places:
        if place is not None and place.path not in found and Path(place.path).is_file():
            found[place.path] = Path(place.path).read_text(encoding="utf-8", errors="replace")
    return found
