"""What TAB reads from the source is what the imported schema and the imported recipes say."""

import inspect
from pathlib import Path

import pytest

from lockstep.cli_keys import config_keys, recipe_classes, recipe_of, recipe_options
from lockstep.recipes import BUILTIN
from lockstep.recipes.resolve import recipe_class
from lockstep.runtime.config.fields import fields


def test_keys_are_those_of_the_schema() -> None:
    keys = config_keys()
    assert list(keys) == list(fields())
    for path, doc in fields().items():
        named = [choice for choice in keys[path].choices if choice not in ("null", "true", "false")]
        assert named == list(doc.choices), path
        assert ("null" in keys[path].choices) == ("`null`" in doc.allowed), path
        assert ("true" in keys[path].choices) == ("`true`" in doc.allowed), path
        assert keys[path].about and keys[path].about[:30] in doc.meaning, path


@pytest.mark.parametrize("recipe", list(BUILTIN))
def test_options_are_those_of_the_class(recipe: str) -> None:
    assert list(recipe_options(recipe)) == list(inspect.signature(recipe_class(recipe)).parameters)


def test_options_of_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine(Recipe):\n    def __init__(self, wide: int = 3, *, deep: bool = True): ...\n")
    assert {name: key.choices for name, key in recipe_options(f"{file}:Mine").items()} == {
        "wide": (),
        "deep": ("true", "false"),
    }
    assert recipe_options(f"{file}:Other") == recipe_options("nowhere.py:A") == recipe_options("unknown") == {}
    file.write_text("class (")
    assert recipe_classes(file) == []


def test_the_recipe_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text("seed: 1\nrecipe: points  # small\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.yaml").write_text("recipe: mine.py:Mine\n")
    monkeypatch.chdir(tmp_path)
    assert recipe_of([]) == "digit_scenes" == recipe_of(["missing.yaml"])
    assert recipe_of(["a.yaml"]) == "points"
    assert recipe_of(["a.yaml", "recipe=voc"]) == "voc"
    assert recipe_of(["sub/b.yaml"]) == "sub/mine.py:Mine"
