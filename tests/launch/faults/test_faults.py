"""Every fault of the table for real: all processes gone in time, the right rank and line, nothing left behind."""

from pathlib import Path
from typing import Any

import pytest

from tests.launch.faults.measure import Measured, done_to
from tests.launch.faults.table import FAULTS, REPORT_S, SLACK_S, SOON_S, STALL_TIMEOUT_S, Fault


def cases() -> list[Any]:
    """Of the fast ones, two stay in `make test`: a stranger's script on 2 ranks."""
    found = []
    for fault in FAULTS:
        for num_ranks in (2, 3):
            quick = fault.fast and num_ranks == 2
            marks = [] if quick else [pytest.mark.slow]
            found.append(pytest.param(fault, num_ranks, id=f"{fault.name}-{num_ranks}", marks=marks))
    return found


@pytest.mark.parametrize(("fault", "num_ranks"), cases())
def test_a_fault(tmp_path: Path, fault: Fault, num_ranks: int) -> None:
    for verb, measured in done_to(tmp_path, fault, num_ranks).items():
        try:
            check(fault, measured)
        except AssertionError as error:
            raise AssertionError(f"{verb}, {num_ranks} ranks: {error}\n{measured.text}") from error


def check(fault: Fault, measured: Measured) -> None:
    block = measured.block
    assert measured.code == fault.code
    for words in filter(None, fault.words.split("|")):
        assert words in block, f"{words!r} is not in the verdict"
    assert not fault.places or any(place in block for place in fault.places), f"{fault.places} is not named"
    assert measured.left == []
    if fault.stall:
        assert 0 < measured.reported_s < REPORT_S + SLACK_S
        assert STALL_TIMEOUT_S - 1 < measured.gone_s < STALL_TIMEOUT_S + REPORT_S
    elif fault.goes_on:
        assert 0 < measured.reported_s < REPORT_S
    else:
        assert measured.gone_s < SOON_S or fault.late
