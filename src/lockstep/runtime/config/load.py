"""From a CONFIG file and overrides to one checked value, and back to YAML."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.runtime.config.fields import field_path
from lockstep.runtime.config.layers import Layer, SourceError, overlay, override_layer, yaml_layer
from lockstep.runtime.config.messages import Sources, field_problems, refuse
from lockstep.runtime.config.problem import KeyPath, Problem, dotted
from lockstep.runtime.config.value import Config

RECIPE_DEFAULTS = resources.files("lockstep").joinpath("recipes")

# Ways to say one thing: a later layer that uses one of them takes the others back.
ALTERNATIVES = (
    ("global_batch", "per_rank", "global_targets"),
    ("accumulation", "micro_batch", "micro_targets"),
)


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The config of a CONFIG file and overrides.

    Later ones win: the schema's defaults, the defaults that come with a built-in recipe, CONFIG, the overrides.
    A CONFIG that has every top-level key, as one written by `dump_config`, stands for itself: the recipe's
    defaults are left out.

    Args:
        path: YAML file; None for none.
        overrides: words such as `optim.lr=3e-4`.

    Raises:
        UserError: naming every mistake at once: what was seen, what is allowed, where it was written.
    """
    cli, problems = override_layer(overrides)
    try:
        own = _config_layer(path) if path is not None else Layer()
        layers = [Layer(Config().model_dump()), own, cli]
        if not set(Config.model_fields) <= set(own.values):
            layers.insert(1, _recipe_layer(OmegaConf.create(merge(layers))))
    except SourceError as bad:
        raise refuse([*bad.problems, *problems]) from None
    values, unresolved = _resolve(OmegaConf.create(merge(layers)))
    sources = Sources([layer.places for layer in layers])
    problems += [*unresolved, *field_problems(values, skip=[problem.paths[0] for problem in unresolved])]
    if problems:
        raise refuse(problems, sources)
    if path is not None and sources.of("recipe") == own.places.get("recipe"):
        values["recipe"] = _beside_config(values["recipe"], path)
    return Config.model_validate(values)


def dump_config(config: Config) -> str:
    """The config as YAML that `load_config` reads back to the equal value."""
    return OmegaConf.to_yaml(OmegaConf.create(_escaped(config.model_dump())))


def _escaped(value: Any) -> Any:
    """Text that looks like an interpolation, written so that it is read as text."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", value)
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value


def _config_layer(path: Path) -> Layer:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SourceError([_missing(path)]) from None
    except IsADirectoryError:
        inside = path / "config.yaml"
        step = f"give the file: {inside}" if inside.is_file() else "give a file in it"
        problem = Problem(f"{path} is a folder", "CONFIG is a YAML file", where=str(path), next_step=step)
        raise SourceError([problem]) from None
    except OSError as error:
        problem = Problem(f"{path} cannot be read: {error.strerror}", "CONFIG is a readable YAML file", where=str(path))
        raise SourceError([problem]) from None
    return yaml_layer(data, str(path))


def _missing(path: Path) -> Problem:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    if field_path(tuple(str(path).split("."))) is not None:
        seen = f"`{path}` is a key of the config without a value"
        return Problem(seen, "a value is given as KEY=VALUE", next_step=f"{path}=VALUE")
    step = f"did you mean {path.parent / near[0]}?" if near else "check the path; it is relative to the current folder"
    return Problem(f"{path} does not exist", "CONFIG is a YAML file", where=str(path), next_step=step)


def merge(layers: Sequence[Layer]) -> dict[Any, Any]:
    """All layers in one, later ones winning; interpolations stay unresolved."""
    merged: dict[Any, Any] = {}
    for layer in layers:
        batch = layer.values.get("batch")
        if isinstance(batch, dict):
            used = [group for group in ALTERNATIVES if any(batch.get(name) is not None for name in group)]
            taken_back = {name: None for group in used for name in group if name not in batch}
            merged = overlay(merged, {"batch": taken_back})
        merged = overlay(merged, layer.values)
    return merged


def _recipe_layer(merged: DictConfig) -> Layer:
    """The defaults that come with the chosen built-in recipe; a recipe of the user's own has none."""
    try:
        name = merged.get("recipe")
    except OmegaConfBaseException:
        return Layer()
    if not isinstance(name, str) or not name.isidentifier():
        return Layer()
    file = RECIPE_DEFAULTS.joinpath(f"{name}.yaml")
    return yaml_layer(file.read_bytes(), f"defaults of recipe {name}") if file.is_file() else Layer()


def _resolve(node: DictConfig, prefix: KeyPath = ()) -> tuple[dict[Any, Any], list[Problem]]:
    """Plain values with all interpolations filled in, without those that cannot be, and why they cannot."""
    values: dict[Any, Any] = {}
    problems: list[Problem] = []
    for key in list(node):
        path = (*prefix, str(key))
        try:
            value = node[key]
            if isinstance(value, DictConfig) and not OmegaConf.is_interpolation(node, str(key)):
                values[key], inner = _resolve(value, path)
                problems += inner
            else:
                plain = OmegaConf.is_config(value)
                values[key] = OmegaConf.to_container(value, resolve=True, throw_on_missing=True) if plain else value
        except (OmegaConfBaseException, RecursionError) as error:
            problems.append(_unresolved(path, node, key, error))
    return values, problems


def _unresolved(path: KeyPath, node: DictConfig, key: Any, error: Exception) -> Problem:
    if OmegaConf.is_missing(node, key):
        return Problem(f"{dotted(path)} is ???", "a value is filled in here", (dotted(path),))
    why = str(error).partition("\n")[0] or type(error).__name__
    step = "write \\${ for a text that holds ${"
    return Problem(
        f"{dotted(path)} cannot be resolved: {why}", "${...} names another key", (dotted(path),), next_step=step
    )


def _beside_config(recipe: str, config: Path) -> str:
    """A recipe file named in CONFIG that is not in the current folder but beside CONFIG."""
    file, colon, name = recipe.rpartition(":")
    if not colon or Path(file).is_absolute() or Path(file).exists() or not (config.parent / file).exists():
        return recipe
    return f"{config.parent / file}:{name}"
