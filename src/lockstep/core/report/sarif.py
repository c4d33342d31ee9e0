"""Findings as SARIF 2.1.0, which code hosts and editors show beside the lines they are about."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from lockstep.core.finding import Place, Severity, Witness
from lockstep.core.proof import Proof, Rung, Status
from lockstep.core.report import words
from lockstep.core.report.excerpt import source_line
from lockstep.core.report.words import clean

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"  # the name that code hosts know
_LEVELS = {Severity.ERROR: "error", Severity.DEVIATION: "warning", Severity.NOTE: "note"}


def sarif(proof: Proof, rules: Mapping[str, tuple[str, str]], root: str = "", version: str = "") -> str:
    """One SARIF log with one run.

    A finding is a result of its rule; its first place is the location, the other witnesses are related locations; an
    accepted code is suppressed. A rung that broke without a finding to explain it is a result of rule
    `lockstep/<rung>`. A rung that could not be judged is a notification of the run, not a result.

    Args:
        proof: the result of `verify`.
        rules: {code: (name, docstring)}; a code that is missing gets a rule without help.
        root: absolute folder of the repository; paths below it are written relative to it.
        version: of Lockstep.
    """
    results = [*_findings(proof, root), *_rungs(proof, root)]
    ids = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = ids.index(result["ruleId"])
    driver = {"name": "Lockstep", "rules": [_rule(one, rules) for one in ids]}
    run: dict[str, Any] = {
        "tool": {"driver": driver | ({"version": version} if version else {})},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(proof)],
        "results": results,
    }
    if root:
        run["originalUriBaseIds"] = {_ROOT: {"uri": _file_uri(root.rstrip("/") + "/")}}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _findings(proof: Proof, root: str) -> Iterator[dict[str, Any]]:
    for finding in proof.findings:
        first = next((one for one in finding.witnesses if one.place is not None), None)
        result = {
            "ruleId": finding.code,
            "level": _LEVELS[finding.severity],
            "message": _message(f"{finding.seen} Must hold: {finding.must} Next: {finding.next_step}"),
            "locations": _locations(proof, first.place if first else None, root),
            "relatedLocations": [
                {"id": number, **_related(proof, one, root)}
                for number, one in enumerate((one for one in finding.witnesses if one is not first), 1)
            ],
            "partialFingerprints": {"lockstep/v1": _fingerprint(proof, finding.code, finding.place, root)},
        }
        if finding.code in proof.accepted:
            reason = f"accepted with --accept {finding.code}"
            result["suppressions"] = [{"kind": "external", "justification": reason}]
        yield result


def _rungs(proof: Proof, root: str) -> Iterator[dict[str, Any]]:
    for rung in proof.rungs:
        if rung.status not in (Status.FAIL, Status.ERROR) or _explained(rung):
            continue
        code = f"lockstep/{rung.name.replace(' ', '-')}"
        place = next((one.place for one in rung.differences if one.place is not None), None)
        said = [f"{rung.status}: {rung.said}"]
        said += [f"First difference: {words.where_it_differs(one)}." for one in rung.differences[:1]]
        cause = words.likeliest(rung.causes)
        said += [f"Cause ({words.confirmed(cause)}): {cause.text} Next: {cause.next_step}"] if cause else []
        yield {
            "ruleId": code,
            "level": "error",
            "message": _message(" ".join(said)),
            "locations": _locations(proof, place, root),
            "partialFingerprints": {"lockstep/v1": _fingerprint(proof, code, place, root)},
        }


def _explained(rung: Rung) -> bool:
    return any(finding.severity is not Severity.NOTE for finding in rung.findings)


def _rule(code: str, rules: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    if code not in rules:
        said = f"The rung '{code.partition('/')[2].replace('-', ' ')}' of the ladder holds." if "/" in code else code
        return {"id": code, "shortDescription": _help(said)}
    name, page = rules[code]
    return {
        "id": code,
        "name": name,
        "shortDescription": _help(page.strip().split("\n")[0] or name),
        "help": _help(page.strip() or name),
    }


def _invocation(proof: Proof) -> dict[str, Any]:
    unjudged = [rung for rung in proof.rungs if rung.status is Status.ABSTAIN and not rung.covered]
    return {
        "executionSuccessful": True,
        "exitCode": int(proof.exit),
        "toolExecutionNotifications": [
            {"level": "note", "message": _message(f"'{rung.name}' could not be judged: {rung.said}")}
            for rung in unjudged
        ],
    }


def _message(text: str) -> dict[str, str]:
    """Words of a result; the standard has braces doubled, since single ones enclose placeholders."""
    return {"text": clean(text).replace("{", "{{").replace("}", "}}")}


def _help(text: str) -> dict[str, str]:
    return {"text": clean(text)}


def _locations(proof: Proof, place: Place | None, root: str) -> list[dict[str, Any]]:
    return [] if place is None else [{"physicalLocation": _physical(proof, place, root)}]


def _related(proof: Proof, witness: Witness, root: str) -> dict[str, Any]:
    side = words.side(witness)
    message = {"message": _message(f"{side}: {witness.text}" if side else witness.text)}
    return message | ({"physicalLocation": _physical(proof, witness.place, root)} if witness.place else {})


def _physical(proof: Proof, place: Place, root: str) -> dict[str, Any]:
    path = words.relative(place.path, root)
    artifact = {"uri": _file_uri(path) if path.startswith("/") else _quoted(path)}
    if root and path != place.path:
        artifact["uriBaseId"] = _ROOT
    found: dict[str, Any] = {"artifactLocation": artifact}
    if place.line > 0:
        found["region"] = {"startLine": place.line}
        source = source_line(proof.sources, place)
        found["region"] |= {"snippet": {"text": source}} if source else {}
    return found


def _fingerprint(proof: Proof, code: str, place: Place | None, root: str) -> str:
    """Stays the same when lines are added above: it has the text of the line instead of its number."""
    parts = [code]
    if place is not None:
        parts += [words.relative(place.path, root), source_line(proof.sources, place) or str(place.line)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _file_uri(path: str) -> str:
    return f"file://{_quoted(path)}"


def _quoted(path: str) -> str:
    """A path as a URI reference; its bytes are those of the file's name, if it has such a name."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = clean(path).encode()
    text = quote(raw, safe="/")
    return f"./{text}" if not PurePath(path).is_absolute() and ":" in path.split("/")[0] else text
