"""`lockstep schema`: the config as a JSON schema, with which editors complete and check a config file."""

import json
import sys
from pathlib import Path
from typing import Any

from lockstep.core.files import put_asked
from lockstep.core.outcome import Exit

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}
"""Any value may be taken from another key or from the environment: `${optim.lr}`, `${oc.env:HOME}`."""
_KEPT = ("enum", "const", "pattern", "minLength", "prefixItems", "minItems", "maxItems", "additionalProperties")
_LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def schema(output: Path | None) -> Exit:
    """Print the schema, or write it to a file.

    Raises:
        UserError: the file cannot be written.
    """
    if output is None:
        sys.stdout.write(schema_text())
        return Exit.DONE
    put_asked(output, schema_text(), "--output")
    return Exit.DONE


def schema_text() -> str:
    """The schema as JSON."""
    return json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"


def config_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a config file.

    What it accepts may still be refused: of what must hold between two keys it knows nothing.
    """
    from lockstep.runtime.config.fields import fields, sections
    from lockstep.runtime.config.schema import Fields

    raw = Fields.model_json_schema()
    defaults = {path: doc.default for path, doc in fields().items()}
    top: dict[str, Any] = {}
    for name, spec in raw["properties"].items():
        if name not in sections():
            top[name] = _value(spec, defaults.get(name))
            continue
        section = raw["$defs"][spec["$ref"].rpartition("/")[2]]
        keys = {key: _value(inner, defaults.get(f"{name}.{key}")) for key, inner in section["properties"].items()}
        mapping = {"type": "object", "properties": keys, "additionalProperties": False}
        top[name] = {"description": sections()[name], "anyOf": [mapping, {"type": "null"}, *_short_form(name, keys)]}
    top["recipe"] = _recipe(top["recipe"])
    top["options"] = {"description": top["options"]["description"], "type": ["object", "null"]}
    about = "The config of a training run, all of it but the number of ranks. Every key can be left out."
    return {
        "$schema": DRAFT,
        "title": "Lockstep config",
        "description": about,
        "type": "object",
        "properties": top,
        "additionalProperties": False,
    }


def _short_form(name: str, keys: dict[str, Any]) -> list[dict[str, Any]]:
    """`precision: bf16` stands for `precision: {name: bf16}`."""
    return [{"anyOf": keys["name"]["anyOf"]}] if name == "precision" else []


def _value(spec: dict[str, Any], default: Any) -> dict[str, Any]:
    """One field: what it is for, its default, and its forms as they may stand in YAML."""
    forms = spec.get("anyOf", [spec])
    parts = [_form(form) for form in forms]
    choices = {choice for form in forms for choice in form.get("enum", ())}
    # The bare words on and off are texts for some readers of YAML, truth values for others.
    parts += [{"const": value} for word, value in (("on", True), ("off", False)) if word in choices]
    if not any(form.get("type") == "string" and "enum" not in form for form in forms):
        parts.append(REFERENCE)
    return {"description": spec.get("description", ""), "default": default, "anyOf": parts}


def _form(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a form that says what is allowed; each element of a list by itself."""
    form = {key: spec[key] for key in ("type", *_KEPT, *_LIMITS) if key in spec}
    if "items" in spec:
        form["items"] = _form(spec["items"])
    return form


def _recipe(spec: dict[str, Any]) -> dict[str, Any]:
    """Built-in names are offered, and files are welcome."""
    from lockstep.recipes import BUILTIN

    file = {"type": "string", "pattern": r"\.py:[^\d\W]\w*$"}
    return {**spec, "anyOf": [{"enum": list(BUILTIN)}, file, REFERENCE]}
