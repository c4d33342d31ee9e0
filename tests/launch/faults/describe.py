"""The page docs/faults.md: `python -m tests.launch.faults.describe > docs/faults.md`. It does every fault for real."""

import re
import sys
import tempfile
from pathlib import Path

import pytest

import tests.police  # noqa: F401 - marks what comes from here
from tests.launch.faults.measure import Measured, done_to
from tests.launch.faults.programs.healthy import KINDS, SLOW
from tests.launch.faults.table import FAULTS, SOON_S, STALL_TIMEOUT_S, Fault, Verb

RANKS = (2, 3)

INTRODUCTION = f"""\
# Faults, and what is read of them

<!-- Made by `python -m tests.launch.faults.describe > docs/faults.md`; change `tests/launch/faults/table.py`. -->

Each fault was done for real, on one rank, after 20 steps, on CPU processes: in a plain PyTorch script under
`lockstep run`, and in a recipe under `lockstep train`. The seconds run from the deed until no process of the launch was
left; they depend on the machine. The tests (`tests/launch/faults/test_faults.py`) look at the same runs: the rank and
the line that are named, the exit code, processes and files that are left.

- What is certain (dead, stopped, collectives that do not fit, a rank that left) has to end within {SOON_S:.0f} s.
- What only waits is reported within three step times and 5 s, and ended at the limit; here it was set to
  `--stall-timeout {STALL_TIMEOUT_S:.0f}`.

What the blocks mean, and what to do: [my run hangs](my-run-hangs.md).
"""


def page() -> str:
    """The whole page in Markdown."""
    found: dict[str, dict[int, dict[Verb, Measured]]] = {}
    for fault in FAULTS:
        for num_ranks in RANKS:
            print(fault.name, num_ranks, file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    measured = done_to(Path(folder), fault, num_ranks)
                except pytest.skip.Exception as skipped:
                    print(skipped, file=sys.stderr)
                    continue
                found.setdefault(fault.name, {})[num_ranks] = {
                    verb: _without(folder, one) for verb, one in measured.items()
                }
    parts = [INTRODUCTION, "## In short\n", *_table(found), "\n## What is read\n"]
    parts += [_section(fault, found[fault.name]) for fault in FAULTS if fault.name in found and fault.words]
    parts += ["## What is left alone\n", _healthy()]
    return "\n".join(parts)


def _table(found: dict[str, dict[int, dict[Verb, Measured]]]) -> list[str]:
    columns = [f"{verb}, {num_ranks} ranks" for verb in ("run", "train") for num_ranks in RANKS]
    rows = ["| on one rank | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for fault in FAULTS:
        if fault.name not in found:
            continue
        cells = [
            _cell(fault, found[fault.name].get(num_ranks, {}).get(verb))
            for verb in ("run", "train")
            for num_ranks in RANKS
        ]
        rows.append(f"| {fault.what} | " + " | ".join(cells) + " |")
    return rows


def _cell(fault: Fault, measured: Measured | None) -> str:
    if measured is None:
        return fault.why_not
    gone = f"{measured.gone_s:.1f} s"
    return f"reported {measured.reported_s:.1f} s, ended {gone}" if fault.stall or fault.goes_on else gone


def _section(fault: Fault, found: dict[int, dict[Verb, Measured]]) -> str:
    verb = fault.verbs[0]
    lines = found[RANKS[-1]][verb].block.split("\n")
    shown = [line for line in lines if not line.startswith("  Logs: ")]
    shown = shown[: next((at for at, line in enumerate(shown) if line.startswith("  Traceback")), None)]
    text = "\n".join(shown)
    title = fault.what[0].upper() + fault.what[1:]
    return f"{title}, rank {fault.rank} of {RANKS[-1]} (`lockstep {verb}`):\n\n```text\n{text}\n```\n"


def _without(folder: str, measured: Measured) -> Measured:
    """Without what is another one in each run: folders, process numbers, ports."""
    text = measured.text.replace(str(Path(__file__).with_name("programs")) + "/", "").replace(f"{folder}/", "")
    measured.text = re.sub(r"\]:\d+", "]:PORT", re.sub(r"\(pid \d+\)", "(pid 4711)", text))
    return measured


def _healthy() -> str:
    names = ", ".join(kind.replace("_", " ") for kind in KINDS)
    slow = ", ".join(kind.replace("_", " ") for kind in SLOW)
    return (
        f"{len(KINDS)} right trainings in which something takes long or is out of the ordinary get no verdict and no"
        f" report (`tests/launch/faults/test_healthy.py`): {names}.\n\nWhat is merely slow is told of, and goes on:"
        f" {slow}.\n"
    )


if __name__ == "__main__":
    print(page(), end="")
