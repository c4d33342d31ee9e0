"""Right runs that take their time: no verdict, no report, exit code 0. Merely slow ones are told of, and not ended."""

from pathlib import Path

import pytest

from tests.commands import Command, Done
from tests.launch.faults.programs.healthy import KINDS

HEALTHY = Path(__file__).with_name("programs") / "healthy.py"
TOGETHER = 4
"""So many run at the same time: they sleep most of it."""


def outcomes(folder: Path, kinds: list[str]) -> dict[str, Done]:
    runs = {
        kind: Command(
            folder / kind,
            "run",
            "--nproc",
            "1" if kind == "spawns_its_own" else "2",
            "--stall-timeout",
            "600",
            str(HEALTHY),
            kind,
        )
        for kind in kinds
    }
    return {kind: run.wait() for kind, run in runs.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [KINDS[at : at + TOGETHER] for at in range(0, len(KINDS), TOGETHER)], ids=lambda kinds: " ".join(kinds)
)
def test_a_healthy_run_is_left_alone(tmp_path: Path, kinds: list[str]) -> None:
    for kind, done in outcomes(tmp_path, kinds).items():
        assert done.code == 0, f"{kind}\n{done.output}"
        said = [line for line in done.output.split("\n") if line and not line.startswith(("well", "loss "))]
        assert said == [], f"{kind}\n{done.output}"
        assert "well 0" in done.output


@pytest.mark.slow
def test_what_is_merely_slow_is_reported_and_goes_on(tmp_path: Path) -> None:
    done = outcomes(tmp_path, ["slow_data", "straggler"])
    assert {kind: one.code for kind, one in done.items()} == {"slow_data": 0, "straggler": 0}
    assert "wait for data most of the time" in done["slow_data"].output
    assert "Rank 1 is the last in" in done["straggler"].output
    assert "does not advance" not in done["slow_data"].output + done["straggler"].output
