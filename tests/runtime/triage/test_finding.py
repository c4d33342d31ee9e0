"""A finding travels between ranks and is equal there."""

import pickle

from lockstep.runtime.triage.finding import Finding, Outcome


def test_it_travels() -> None:
    finding = Finding("forward", "a", "Linear", "linear", "nan", "float16", 1.0, "x.py:1: y", "-inf", ("b",))
    outcome = Outcome(finding, float("inf"), False, 1, "x holds nan", ("w",), "")
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert Outcome().finite
