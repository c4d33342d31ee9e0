"""The JSON schema accepts every config that is right, and names what is wrong as the config itself does."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from lockstep.core.errors import UserError
from lockstep.init import project
from lockstep.recipes import BUILTIN
from lockstep.runtime.config import dump_config, load_config
from lockstep.runtime.config.fields import fields
from lockstep.schema import config_schema, schema, schema_text

PACKAGED = sorted((Path(__file__).parents[1] / "src" / "lockstep" / "recipes").glob("*.yaml"))
SCHEMA = config_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def mistakes(config: Any) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(config)]


def read(text: str) -> Any:
    """As the runtime reads YAML, and not as an editor: with numbers such as 3e-4."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.create(text))


def test_it_is_a_schema_of_its_draft() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert json.loads(schema_text()) == SCHEMA


def test_every_key_is_in_it_with_its_meaning() -> None:
    for path, doc in fields().items():
        spec = SCHEMA["properties"][doc.path[0]]
        if len(doc.path) == 2:
            spec = spec["anyOf"][0]["properties"][doc.path[1]]
        assert spec["description"] == doc.meaning, path
        if path not in ("recipe", "options"):
            assert spec["default"] == doc.default and spec["anyOf"], path


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.name)
def test_packaged_configs_are_right(path: Path) -> None:
    assert not mistakes(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_config_of_a_new_project_is_right() -> None:
    texts = {path.as_posix(): text for path, text in project("x", "x").items()}
    assert not mistakes(read(texts["config.yaml"]))
    assert texts["config.yaml"].startswith("# yaml-language-server: $schema=.config.schema.json\n")
    assert texts[".config.schema.json"] == schema_text()


@pytest.mark.parametrize("recipe", list(BUILTIN))
def test_dumped_configs_are_right(recipe: str) -> None:
    assert not mistakes(read(dump_config(load_config(None, [f"recipe={recipe}"]))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "recipe: my.py:Mine",
        "recipe: ../a b/my.py:Mine\noptions: {x: [1, {y: null}]}",
        "precision: bf16",
        "precision: {name: bf16}",
        "parallel: {find_unused: off, broadcast_buffers: on}",
        "optim:\nstop:",
        "optim: {lr: 1, betas: [0.9, 0.95], clip_norm: null}",
        "optim: {lr: '${options.lr}'}\nrun: {dir: '${oc.env:HOME}/runs'}\nseed: ${oc.env:SEED}",
        "batch: {global_batch: null, per_rank: 4}",
    ],
)
def test_what_is_right(text: str) -> None:
    assert not mistakes(read(text or "{}"))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("optim: {lrr: 1}", "$.optim"),
        ("optimizer: {lr: 1}", "$"),
        ("recipe: digit_scene", "$.recipe"),
        ("recipe: my.py", "$.recipe"),
        ("recipe: 3", "$.recipe"),
        ("options: [1]", "$.options"),
        ("seed: -1", "$.seed"),
        ("seed: 1.5", "$.seed"),
        ("precision: bfloat", "$.precision"),
        ("precision: {nam: bf16}", "$.precision"),
        ("optim: {lr: 0}", "$.optim"),
        ("optim: {lr: '0.1'}", "$.optim"),
        ("optim: {name: adamax}", "$.optim"),
        ("optim: {betas: [0.9]}", "$.optim"),
        ("optim: {betas: [0.9, 1.0]}", "$.optim"),
        ("optim: 3", "$.optim"),
        ("batch: {global_batch: 0}", "$.batch"),
        ("batch: {eval: null}", "$.batch"),
        ("parallel: {find_unused: maybe}", "$.parallel"),
        ("parallel: {sync_batchnorm: auto}", "$.parallel"),
        ("stop: {epochs: many}", "$.stop"),
        ("run: {dir: ''}", "$.run"),
        ("[1]", "$"),
    ],
)
def test_what_is_wrong(text: str, path: str, tmp_path: Path) -> None:
    assert mistakes(read(text)) == [path]
    (tmp_path / "config.yaml").write_text(text)
    if not text.startswith(("recipe: digit", "recipe: my")):  # names of recipes are looked up later
        with pytest.raises(UserError):
            load_config(tmp_path / "config.yaml")


def test_it_goes_to_a_file_or_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema(tmp_path / "a.json")
    schema(None)
    assert (tmp_path / "a.json").read_text() == schema_text() == capsys.readouterr().out
    with pytest.raises(UserError, match="cannot be written"):
        schema(tmp_path / "nowhere" / "a.json")
    with pytest.raises(UserError, match="cannot be written"):
        schema(tmp_path)
