"""SARIF 2.1.0: the structure that the standard asks for, and what is where."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from lockstep.core.finding import Place
from lockstep.core.proof import Proof, Status
from lockstep.core.report.sarif import sarif
from tests.core.report.examples import ROOT, RULES, example_proof, hostile, passed

# Of each object of the standard that is used: its properties, those that it must have with an exclamation mark.
OBJECTS = {
    "log": "$schema:str version!:str runs!:run*",
    "run": "tool!:tool columnKind:str invocations:invocation* results:result* originalUriBaseIds:bases",
    "tool": "driver!:component",
    "component": "name!:str version:str rules:rule*",
    "rule": "id!:str name:str shortDescription:message help:message",
    "invocation": "executionSuccessful!:bool exitCode:int toolExecutionNotifications:notification*",
    "notification": "message!:message level:str",
    "result": "ruleId:str ruleIndex:int level:str message!:message locations:location* relatedLocations:location* "
    "partialFingerprints:texts suppressions:suppression*",
    "message": "text!:str",
    "location": "id:int physicalLocation:physical message:message",
    "physical": "artifactLocation!:artifact region:region",
    "artifact": "uri!:str uriBaseId:str",
    "region": "startLine!:int snippet:content",
    "content": "text!:str",
    "suppression": "kind!:str justification:str",
}
CHOICES = {
    "level": {"none", "note", "warning", "error"},
    "kind": {"inSource", "external"},
    "version": {"2.1.0", "0.1.0"},
    "columnKind": {"utf16CodeUnits", "unicodeCodePoints"},
}


def check(value: Any, kind: str, at: str) -> None:
    plain = {"str": str, "int": int, "bool": bool}
    if kind in plain:
        assert type(value) is plain[kind], at
        assert at.rpartition(".")[2] not in CHOICES or value in CHOICES[at.rpartition(".")[2]], at
    elif kind.endswith("*"):
        for place, one in enumerate(value):
            check(one, kind[:-1], f"{at}[{place}]")
    elif kind in ("texts", "bases"):
        for key, one in value.items():
            check(one, "str" if kind == "texts" else "artifact", f"{at}.{key}")
    else:
        fields = dict(field.split(":") for field in OBJECTS[kind].split())
        needed = {name[:-1] for name in fields if name.endswith("!")}
        known = {name.rstrip("!"): of for name, of in fields.items()}
        assert needed <= value.keys() <= known.keys(), f"{at}: {value.keys()}"
        for key, one in value.items():
            check(one, known[key], f"{at}.{key}")
        check_more(value, kind, at)


def check_more(value: Mapping[str, Any], kind: str, at: str) -> None:
    """What types alone do not say."""
    if kind == "region":
        assert value["startLine"] >= 1, at
    if kind == "artifact":
        assert re.fullmatch(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-F]{2})+", value["uri"]), at
    if kind == "run":
        ids = [rule["id"] for rule in value["tool"]["driver"]["rules"]]
        assert len(set(ids)) == len(ids)
        assert all(ids[one["ruleIndex"]] == one["ruleId"] for one in value["results"])


def run_of(proof: Proof, root: str = ROOT) -> dict[str, Any]:
    value = json.loads(sarif(proof, RULES, root, "0.1.0"))
    check(value, "log", "log")
    run = value["runs"][0]
    assert isinstance(run, dict)
    return run


@pytest.mark.parametrize("root", ["", ROOT, f"{ROOT}/", "/elsewhere"])
@pytest.mark.parametrize("proof", [*map(example_proof, Status), hostile(), Proof("a", "b", 2, ())])
def test_the_structure_is_that_of_the_standard(proof: Proof, root: str) -> None:
    run_of(proof, root)


def test_the_check_sees_what_is_wrong() -> None:
    for wrong in ('{"version": "2.1.0"}', '{"version": "2.1.0", "runs": [{"tool": {}}]}', '{"version": 2, "runs": []}'):
        with pytest.raises(AssertionError):
            check(json.loads(wrong), "log", "log")


def test_a_finding_has_its_rule_its_place_and_the_other_sides() -> None:
    run = run_of(example_proof(Status.FAIL))
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("LS101", "error"), ("LS307", "note")]
    result = run["results"][0]
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "train_ddp.py", "uriBaseId": "%SRCROOT%"}
    assert physical["region"]["startLine"] == 28
    assert run["originalUriBaseIds"]["%SRCROOT%"] == {"uri": f"file://{ROOT}/"}
    assert [one["physicalLocation"]["region"]["startLine"] for one in result["relatedLocations"]] == [18, 28]
    assert result["relatedLocations"][1]["message"]["text"].startswith("rank 1, step 0: ")
    assert "Must hold: Every training forward" in result["message"]["text"]
    rule = run["tool"]["driver"]["rules"][0]
    assert (rule["id"], rule["name"]) == ("LS101", "through_wrapper")
    assert rule["shortDescription"]["text"] == "Every training forward goes through the wrapper."
    assert "DDP reduces there." in rule["help"]["text"]


def test_an_accepted_deviation_is_a_suppressed_warning() -> None:
    results = run_of(passed())["results"]
    assert [(one["level"], "suppressions" in one) for one in results] == [("warning", True), ("note", False)]


def test_a_break_that_no_finding_explains_is_a_result_of_its_rung() -> None:
    proof = example_proof(Status.FAIL)
    rungs = tuple(type(rung)(rung.name, rung.status, rung.said, rung.differences, rung.causes) for rung in proof.rungs)
    run = run_of(Proof(proof.program, proof.reference, 2, rungs, sources=proof.sources))
    (result,) = run["results"]
    assert result["ruleId"] == "lockstep/mirror"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 28
    assert "Cause (confirmed" in result["message"]["text"]
    assert run["tool"]["driver"]["rules"][0]["shortDescription"]["text"] == "The rung 'mirror' of the ladder holds."


def test_what_could_not_be_judged_is_a_notification() -> None:
    run = run_of(example_proof(Status.ABSTAIN))
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert invocation["exitCode"] == 3
    assert [one["message"]["text"] for one in invocation["toolExecutionNotifications"]] == [
        "'mixed precision' could not be judged: This CPU has no bfloat16."
    ]


def test_a_hostile_path_is_one_uri_of_the_same_bytes() -> None:
    result = run_of(hostile(), "/tmp")["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert urlsplit(uri).scheme == ""
    assert unquote(uri, errors="surrogateescape").endswith("/a:b.py")
    assert "%FF" in uri


def test_braces_of_a_message_are_no_placeholders() -> None:
    result = run_of(hostile())["results"][0]
    assert "{{{{ 7*7 }}}}" in result["message"]["text"]


def test_the_fingerprint_stays_when_lines_move_and_changes_with_the_line() -> None:
    def prints(source: str, line: int) -> str:
        proof = passed()
        rung = proof.rungs[-1]
        witness = replace(rung.findings[1].witnesses[0], place=Place(f"{ROOT}/a.py", line))
        rung = replace(rung, findings=(replace(rung.findings[1], witnesses=(witness,)),))
        run = run_of(replace(proof, rungs=(rung,), sources={f"{ROOT}/a.py": source}))
        return str(run["results"][0]["partialFingerprints"])

    assert prints("save(x)\n", 1) == prints("\n\n  save(x)\n", 3) != prints("save(y)\n", 1)
