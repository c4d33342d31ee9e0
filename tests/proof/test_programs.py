"""The proof on whole programs: right ones hold, wrong ones break where they are wrong, nasty ones end in words."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from lockstep.core.proof import Status
from tests.programs import catalog
from tests.programs.catalog import MIRROR, SHARD, Program
from tests.proof.proving import Proven, prove_program

FAST = ("right/plain", "right/pair_train_ddp against right/pair_train", "wrong/mean_of_unequal_means")
"""The rest is for `make test-all`."""
SHARD_TOLERANCE = 1e-12


def cases(programs: tuple[Program, ...], runs: int = 1) -> list[object]:
    return [
        pytest.param(program, id=f"{program.title}{f' run {run}' if run else ''}", marks=_marks(program, run))
        for program in programs
        for run in range(runs)
    ]


def _marks(program: Program, run: int) -> list[pytest.MarkDecorator]:
    return [] if program.title in FAST and run == 0 else [pytest.mark.slow]


@pytest.fixture(scope="session")
def prove_all(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program], Proven]:
    """The proof of a program with `--all`, made once for all tests that look at it."""

    @cache
    def once(program: Program) -> Proven:
        return prove_program(tmp_path_factory.mktemp("program"), program, "--all")

    return once


@pytest.mark.parametrize("program", cases(catalog.RIGHT_PROGRAMS, runs=3))
def test_a_right_program_is_proven(program: Program, tmp_path: Path) -> None:
    proven = prove_program(tmp_path, program)
    assert proven.done.code == 0, proven.done.output
    assert proven.proof is not None
    undeclared = [one for one in proven.proof.findings if one.severity == "error" or one.severity == "deviation"]
    assert all(one.code in proven.proof.accepted for one in undeclared)
    assert proven.rung("shard").status is Status.PASS
    assert error_of(proven) <= SHARD_TOLERANCE
    wanted = Status.PASS if program.mirrors else Status.ABSTAIN
    assert proven.rung("mirror").status is wanted
    assert proven.proof.seconds < 60


def error_of(proven: Proven) -> float:
    """The figure that the shard rung states."""
    return float(proven.rung("shard").said.rpartition(" ")[2])


@pytest.mark.parametrize("program", cases(catalog.WRONG_PROGRAMS + catalog.PAIR_PROGRAMS))
def test_a_wrong_program_is_caught(program: Program, prove_all: Callable[[Program], Proven]) -> None:
    if catalog.RESUME in program.expected:
        pytest.skip("tests/proof/test_resume.py")
    proven = prove_all(program)
    if catalog.MISSED in program.expected:
        assert proven.done.code == 0, "caught now: tell the catalog and docs/verify.md"
        return
    assert proven.done.code == 1, proven.done.output
    for expected in program.expected:
        if expected in (MIRROR, SHARD):
            assert proven.rung(expected.partition(":")[2]).status is Status.FAIL, proven.done.output
        else:
            assert expected in proven.codes(), proven.done.output


CAUSES = {
    # program: (rung, step, what, name, code, confirmed)
    "unsynced_batch_norm": ("shard", 0, "output", "1", "LS116", True),
    "mean_of_unequal_means": ("shard", 0, "loss", "", "LS410", True),
    "missing_all_reduce": ("shard", 0, "gradient", "2.bias", "LS102", True),
    "stale_optimizer": ("mirror", 0, "gradient", "2.weight", "LS109", None),
    "rank_augmentation": ("mirror", 0, "batch", "0", "LS409", True),
    "sum_loss": ("shard", 0, "loss", "", "LS411", True),
    "accumulation_not_divided": ("shard", 0, "gradient", "2.weight", "LS411", True),
    "lr_changed": ("mirror", 0, "lr", "", "LS412", True),
    "other_initialisation": ("mirror", 0, "start", "0.weight", "LS413", True),
    "bypassed_wrapper": ("shard", 0, "gradient", "2.bias", "LS102", True),
    "dropout_extra": ("mirror", 0, "output", "0", "LS414", True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_step_module_and_cause_are_named(name: str, prove_all: Callable[[Program], Proven]) -> None:
    rung, step, what, module, code, confirmed = CAUSES[name]
    proven = prove_all(catalog.named_file(f"wrong/{name}.py"))
    broken = proven.rung(rung)
    first = broken.differences[0]
    assert (first.step, first.what, first.name) == (step, what, module), broken
    assert (broken.causes[0].code, broken.causes[0].confirmed) == (code, confirmed), broken.causes


@pytest.mark.parametrize("program", cases(catalog.NASTY_PROGRAMS))
def test_a_nasty_program_ends_in_plain_words(program: Program, tmp_path: Path) -> None:
    proven = prove_program(tmp_path, program, "--timeout", "40")
    output = proven.done.output
    assert "Traceback" not in output
    assert proven.proof is not None, output
    verdict = output.split(":")[0].strip()
    codes = [one for one in program.expected if one.startswith("LS")]
    if codes:
        assert proven.codes() & set(codes), output
    else:
        assert verdict in program.expected, output
    assert proven.done.code == {"PASS": 0, "ABSTAIN": 3}.get(verdict, 1)
