"""A proof as JSON and back, exactly.

The keys are the fields of `core/proof.py` and `core/finding.py`. Numbers that JSON does not have are the texts "NaN",
"Infinity" and "-Infinity". `schema` names this form: fields may be added under the same number; one that goes or
changes its meaning raises it. `verdict`, `exit`, `said` and `next` are there for readers; they follow from the rest.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lockstep.core.errors import UserError, explain
from lockstep.core.proof import Proof
from lockstep.core.report import words

SCHEMA = "lockstep-proof/1"


def to_json(proof: Proof) -> str:
    """The whole proof; ASCII only, so that it survives any encoding, and text that is no UTF-8 survives too."""
    derived = {
        "schema": SCHEMA,
        "verdict": words.status(proof).value,
        "exit": int(proof.exit),
        "said": words.verdict(proof),
        "next": words.next_step(proof),
    }
    return json.dumps(derived | _plain(proof), indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> Proof:
    """The proof that `to_json` wrote: equal in every field.

    Raises:
        UserError: the text is no JSON, of another schema, or a field is missing or of another type.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"the text is no JSON ({error})") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise _refusal(f"the schema is {schema!r}")
    proof = _read(Proof, value, "proof")
    assert isinstance(proof, Proof)
    return proof


def _refusal(seen: str) -> UserError:
    return UserError(explain(seen, f"a proof written by `lockstep verify`, schema {SCHEMA}", next_step="verify again"))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _read(kind: Any, value: Any, at: str) -> Any:
    """A JSON value as `kind`: a dataclass, an enumeration, tuple[X, ...], dict[str, X], X | None or a plain type."""
    origin = get_origin(kind)
    if origin is UnionType:
        if value is None and NoneType in get_args(kind):
            return None
        return _read(next(one for one in get_args(kind) if one is not NoneType), value, at)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(get_args(kind)[0], one, f"{at}[{place}]") for place, one in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _read(get_args(kind)[1], one, f"{at}.{key}") for key, one in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _read_fields(kind, value, at)
    return _read_plain(kind, value, at)


def _read_fields(kind: Any, value: Mapping[str, Any], at: str) -> Any:
    hints = get_type_hints(kind)
    given = {}
    for one in fields(kind):
        if one.name in value:
            given[one.name] = _read(hints[one.name], value[one.name], f"{at}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise _refusal(f"{at}.{one.name} is missing")
    return kind(**given)


def _read_plain(kind: Any, value: Any, at: str) -> Any:
    if kind is float:
        if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
    elif isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    elif kind in (str, int, bool) and type(value) is kind:
        return value
    raise _refusal(f"{at} is {json.dumps(value)[:80]}")
