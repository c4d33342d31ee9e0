"""A proof as JSON and back: nothing changes, and what is not ours is refused with a reason."""

import json
import math
import sys
from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.errors import UserError
from lockstep.core.proof import Curve, Proof, Status
from lockstep.core.report.as_json import SCHEMA, from_json, to_json
from tests.core.report.examples import example_proof, failed, hostile


@pytest.mark.parametrize("proof", [*map(example_proof, Status), Proof("", "", 0, ())], ids=lambda one: str(one.exit))
def test_it_comes_back_equal(proof: Proof) -> None:
    assert from_json(to_json(proof)) == proof


def test_hostile_text_and_every_float_come_back_the_same() -> None:
    values = (0.1, -0.0, 5e-324, sys.float_info.max, math.nan, math.inf, -math.inf, 1 / 3)
    proof = replace(hostile(), curves=(Curve("\ud800 é\u2028", values),))
    assert repr(from_json(to_json(proof))) == repr(proof)  # NaN is not equal to itself, but its text is
    assert to_json(from_json(to_json(proof))) == to_json(proof)


def test_it_is_strict_ascii_json_with_a_schema_and_the_verdict() -> None:
    text = to_json(hostile())
    text.encode("ascii")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(text, parse_constant=refuse)
    value = json.loads(to_json(failed()))
    assert value["schema"] == SCHEMA == "lockstep-proof/1"
    assert (value["verdict"], value["exit"]) == ("FAIL", 1)
    assert value["next"] == "call wrapped(inputs) instead of model(inputs) in line 28."
    assert value["rungs"][4]["differences"][0]["place"] == {"path": "/home/ada/project/train_ddp.py", "line": 28}


def test_fields_that_were_added_later_do_not_disturb_and_defaults_may_be_missing() -> None:
    value = json.loads(to_json(failed()))
    value["new"] = {"x": 1}
    del value["curves"], value["rungs"][0]["causes"]
    assert from_json(json.dumps(value)) == replace(failed(), curves=())


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"schema": "lockstep-proof/99"}, "the schema is 'lockstep-proof/99'"),
        ({"num_ranks": "2"}, 'proof.num_ranks is "2"'),
        ({"num_ranks": True}, "proof.num_ranks is true"),
        ({"rungs": [{"name": "x", "status": "MAYBE", "said": ""}]}, 'proof.rungs[0].status is "MAYBE"'),
        ({"rungs": [{"name": "x"}]}, "proof.rungs[0].status is missing"),
        ({"rungs": {}}, "proof.rungs is {}"),
        ({"curves": [{"label": "x", "values": [1, None]}]}, "proof.curves[0].values[1] is null"),
        ({"curves": [{"label": "x", "values": ["nan"]}]}, 'proof.curves[0].values[0] is "nan"'),
        ({"digests": {"a": 1}}, "proof.digests.a is 1"),
    ],
)
def test_what_is_not_a_proof_is_refused(change: dict[str, Any], seen: str) -> None:
    value = json.loads(to_json(failed())) | change
    with pytest.raises(UserError) as error:
        from_json(json.dumps(value))
    assert str(error.value).startswith(seen)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 10_000])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        from_json(text)
