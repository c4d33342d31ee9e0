from typing import Any

from lockstep.core.finding import Severity
from lockstep.rules import evaluate_once
from lockstep.trace.events import Collective, Event
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import EVERY, FIRST, HERE, SECOND, loader, reading, trained

PADDED = (FIRST, (*SECOND[:-1], FIRST[0]))


def judged(ids: tuple[tuple[int, ...], ...], op: str = "all_reduce", **fields: Any) -> Trace:
    sides: list[list[Event]] = []
    for rank in (0, 1):
        of = loader(0, rank, shuffle=False, **{"length": 15, **fields})
        call = [Collective(number=0, op=op, at=f"{HERE}:40")] if op else []
        sides.append([of, *reading(of, ids[rank], train=False), *call, *trained()])
    return trace(*sides)


def test_padded_samples_count_twice() -> None:
    (finding,) = evaluate_once.dynamic(judged(PADDED))
    assert (finding.code, finding.severity) == ("LS203", Severity.ERROR)
    assert finding.seen.startswith("an evaluation of 15 samples counts 16: 1 of them twice (the samples 8)")
    assert [side.rank for side in finding.witnesses] == [0, 1, 0]
    assert finding.witnesses[2].text == "all_reduce puts them together"


def test_outputs_that_are_gathered_may_be_cut() -> None:
    (finding,) = evaluate_once.dynamic(judged(PADDED, "all_gather"))
    assert finding.severity is Severity.NOTE


def test_left_alone() -> None:
    assert not list(evaluate_once.dynamic(judged((FIRST, SECOND), length=16)))
    assert not list(evaluate_once.dynamic(judged(PADDED, "")))
    assert not list(evaluate_once.dynamic(judged((EVERY, EVERY), length=16))), "everyone evaluates everything"
    own = [loader(0, rank, split=f"part {rank}", sampler_ranks=None, length=8) for rank in (0, 1)]
    sides = [[of, *reading(of, ids, train=False)] for of, ids in zip(own, (FIRST, SECOND), strict=True)]
    assert not list(evaluate_once.dynamic(trace(*sides)))


def test_padding_in_training_is_left_alone() -> None:
    sides = [[loader(0, rank), *reading(loader(0, rank), PADDED[rank])] for rank in (0, 1)]
    assert not list(evaluate_once.dynamic(trace(*sides)))


def test_evaluation_on_rank_0_only_is_left_alone() -> None:
    of = loader(1, shuffle=False, length=15)
    both = [[loader(0, rank), *reading(loader(0, rank), (FIRST, SECOND)[rank])] for rank in (0, 1)]
    assert not list(evaluate_once.dynamic(trace(both[0] + [of, *reading(of, PADDED[0], train=False)], both[1])))
