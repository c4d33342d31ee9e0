"""Configs from text, and the message of a config that is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.config import Config, load_config

Load = Callable[..., Config]
Refusal = Callable[..., str]


@pytest.fixture(autouse=True)
def no_recipe_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the recipes' defaults, empty: the built-in recipes' own files are not what is tested here."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    monkeypatch.setattr("lockstep.runtime.config.load.RECIPE_DEFAULTS", folder)
    return folder


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(text: str | bytes | None, *overrides: str) -> Config:
        if text is None:
            return load_config(None, overrides)
        path = tmp_path / "config.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path, overrides)

    return loaded


@pytest.fixture
def refusal(load: Load) -> Refusal:
    def message(text: str | bytes | None, *overrides: str) -> str:
        with pytest.raises(UserError) as caught:
            load(text, *overrides)
        assert caught.value.exit_code == 2
        return str(caught.value)

    return message
