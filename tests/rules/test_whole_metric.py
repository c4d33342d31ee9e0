"""LS401: a metric of one rank's share."""

import pytest

from lockstep.rules import whole_metric
from tests.rules.by_hand import barrier, evaluation, file, reduced, said, steps, trace

EVEN, ODD = range(0, 16, 2), range(1, 16, 2)


def test_a_share_is_printed() -> None:
    (finding,) = whole_metric.dynamic(
        trace([*steps(), *evaluation(EVEN), said("accuracy 0.75"), *steps()], [*steps(), *evaluation(ODD), *steps()])
    )
    assert "8 on rank 0, 8 on rank 1" in finding.seen
    assert [one.text for one in finding.witnesses] == ["evaluates 8 samples", "evaluates 8 samples", "accuracy 0.75"]


def test_a_share_decides_what_is_saved_and_is_told_once() -> None:
    runs = [
        [event for number in range(3) for event in (*evaluation(ids, number), *(file("save") for _ in here), *steps())]
        for ids, here in ((EVEN, "x"), (ODD, ""))
    ]
    assert len(list(whole_metric.dynamic(trace(*runs)))) == 1


def test_a_barrier_brings_nothing_together() -> None:
    assert list(
        whole_metric.dynamic(trace([*evaluation(EVEN), barrier(), said("0.75")], [*evaluation(ODD), barrier()]))
    )


def test_in_evaluation_mode_with_gradients_on() -> None:
    runs = [[*evaluation(ids, grad=True), said("0.75")] for ids in (EVEN, ODD)]
    assert list(whole_metric.dynamic(trace(*runs)))


def copied(text: str, *others: str) -> list[list]:
    """(5, 8) and (6, 8) are reduced to (11, 16)."""
    texts = [[text], list(others)]
    given = [5, 8], [6, 8]
    return [
        [*evaluation(ids), reduced(own, [11, 16]), *(said(one) for one in words)]
        for ids, own, words in zip((EVEN, ODD), given, texts, strict=True)
    ]


def test_a_copy_is_reduced() -> None:
    (finding,) = whole_metric.dynamic(trace(*copied("epoch 5: accuracy 0.6250")))
    assert "the reduced tensor was a copy" in finding.seen
    for right in (
        copied("accuracy 0.6875"),
        copied("own 0.6250, all 0.6875"),
        copied("5 of 8"),
        copied("0.6250", "0.7500"),
    ):
        assert not list(whole_metric.dynamic(trace(*right)))


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([[*evaluation(ids), reduced([5, 8]), said("0.7")] for ids in (EVEN, ODD)], id="reduced"),
        pytest.param(
            [[*evaluation(ids), *evaluation(ids, 1), reduced([5, 8]), said("0.7")] for ids in (EVEN, ODD)],
            id="two passes, reduced together",
        ),
        pytest.param([[*evaluation(range(16)), said("0.7")]] * 2, id="every rank evaluates all"),
        pytest.param([[*evaluation(range(16)), said("0.7")], []], id="rank 0 alone evaluates"),
        pytest.param([evaluation(EVEN), evaluation(ODD)], id="nobody uses it"),
        pytest.param(
            [[*evaluation(ids), file("save", f"{rank}.pt"), said("done")] for rank, ids in enumerate((EVEN, ODD))],
            id="each keeps what it found",
        ),
        pytest.param(
            [[*evaluation(ids, training=True, grad=True), said("0.7")] for ids in (EVEN, ODD)], id="no evaluation"
        ),
    ],
)
def test_left_alone(runs: list[list]) -> None:
    assert not list(whole_metric.dynamic(trace(*runs)))
