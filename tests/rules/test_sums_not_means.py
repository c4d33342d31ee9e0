"""LS402: means of unequal shares are averaged."""

import pytest

from lockstep.core.finding import Severity
from lockstep.rules import sums_not_means
from tests.rules.by_hand import evaluation, reduced, said, trace

MORE, LESS = range(17), range(17, 33)


def test_accuracies_of_unequal_shares() -> None:
    (finding,) = sums_not_means.dynamic(
        trace([*evaluation(MORE), reduced([12 / 17])], [*evaluation(LESS), reduced([9 / 16])])
    )
    assert finding.severity is Severity.DEVIATION
    assert "17 and 16 samples with means 0.705882 and 0.5625" in finding.seen
    assert "the mean of the means is 0.634191, over all samples it is 0.636364 (0.0022 off)" in finding.seen


def test_percentages() -> None:
    assert list(
        sums_not_means.dynamic(
            trace([*evaluation(MORE), reduced([1200 / 17])], [*evaluation(LESS), reduced([900 / 16])])
        )
    )


def test_losses_whose_mean_is_printed() -> None:
    runs = [[*evaluation(MORE), reduced([0.71]), said("loss 0.6235")], [*evaluation(LESS), reduced([0.537])]]
    assert list(sums_not_means.dynamic(trace(*runs)))
    gathered = [[*evaluation(MORE), reduced([0.71], op="all_gather", reduce="")]]
    gathered += [[*evaluation(LESS), reduced([0.537], op="all_gather", reduce="")]]
    gathered[0].append(said("loss 0.6235"))
    assert list(sums_not_means.dynamic(trace(*gathered)))


def test_averaged_by_the_collective() -> None:
    runs = [[*evaluation(ids), reduced([value], reduce="avg")] for ids, value in ((MORE, 0.71), (LESS, 0.53))]
    assert list(sums_not_means.dynamic(trace(*runs)))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(
            [[*evaluation(MORE), reduced([12, 17])], [*evaluation(LESS), reduced([9, 16])]], id="counts travel"
        ),
        pytest.param(
            [
                [*evaluation(MORE), reduced([12 / 17]), reduced([17])],
                [*evaluation(LESS), reduced([9 / 16]), reduced([16])],
            ],
            id="counts travel by another collective",
        ),
        pytest.param(
            [[*evaluation(MORE), reduced([12])], [*evaluation(LESS), reduced([9])]], id="hits over a known length"
        ),
        pytest.param(
            [[*evaluation(MORE), reduced([11.93]), said("loss 0.6412")], [*evaluation(LESS), reduced([9.23])]],
            id="sums of losses over a known length",
        ),
        pytest.param(
            [[*evaluation(range(16)), reduced([0.75])], [*evaluation(range(16, 32)), reduced([0.5])]], id="equal shares"
        ),
        pytest.param([[*evaluation(MORE), reduced([0.0])], [*evaluation(LESS), reduced([1.0])]], id="whole numbers"),
    ],
)
def test_left_alone(runs: list[list]) -> None:
    assert not list(sums_not_means.dynamic(trace(*runs)))
