"""`lockstep scan`: read the whole data set once, in parallel, and name every bad sample."""

import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.core.files import check_writable, put_asked
from lockstep.core.outcome import Exit
from lockstep.runtime.config import Config, load_config

if TYPE_CHECKING:
    from lockstep.runtime.recipe import Recipe
    from lockstep.runtime.scanning.reading import Source
    from lockstep.runtime.scanning.result import Result

_STDOUT = "-"
_SPLITS = {"train": ("train",), "val": ("val",), "all": ("train", "val")}


def scan(
    config_path: Path | None,
    overrides: Sequence[str],
    split: str = "all",
    workers: int | None = None,
    json_path: str | None = None,
    show: int = 10,
    timeout_s: float = 60.0,
) -> Exit:
    """Read every sample once, as the training would in its first epoch, and name those that are bad.

    Args:
        config_path: a YAML file, None for the recipe's own defaults.
        overrides: `key=value` items.
        split: `train`, `val` or `all`.
        workers: processes that read; None for one a core.
        json_path: a file for everything as JSON; `-` prints it instead of the text.
        show: findings of each kind that are printed.
        timeout_s: seconds that one sample may take; 0: no limit.

    Returns: DONE where nothing was found, FAILED where something was, INTERRUPTED after Ctrl-C, with what was found
        by then.

    Raises:
        UserError: the config, the recipe or the data as a whole is wrong, or the report or the JSON file cannot be
            written.
    """
    if split not in _SPLITS:
        raise UserError(explain(f"--split {split}", f"one of {', '.join(_SPLITS)}"))
    if json_path not in (None, _STDOUT):
        check_writable(Path(json_path), "--json")  # before minutes of work
    config = load_config(config_path, overrides)
    from lockstep.recipes.resolve import check_recipe_name, load_recipe
    from lockstep.runtime.scanning.scanner import Scanner
    from lockstep.runtime.scanning.words import report
    from lockstep.runtime.world import num_cores

    check_recipe_name(config.recipe)
    with redirect_stdout(sys.stderr):  # what a recipe prints is not the report
        recipe = load_recipe(config.recipe, config.options)
        sources = _sources(recipe, config, split)
        num_workers = workers or _workers(num_cores(), sources)
        scanner = Scanner(config.recipe, sources, recipe, config.seed, num_workers, timeout_s or math.inf)
        result = scanner.run()
    values = json.dumps(result.values(), indent=1, allow_nan=False) + "\n"
    _check_streams(sources, result)
    try:
        _say(values if json_path == _STDOUT else f"{report(result, show)}\n")
    finally:  # minutes of work are not lost with one of the two
        if json_path not in (None, _STDOUT):
            put_asked(Path(json_path), values, "--json")
    if scanner.interrupted:
        return Exit.INTERRUPTED
    return Exit.FAILED if result.errors or result.stopped else Exit.DONE


def _check_streams(sources: Sequence["Source"], result: "Result") -> None:
    """Refuse a stream that has come to its end without a sample, as a set of the length 0 is refused.

    Raises:
        UserError: there is one.
    """
    from lockstep.runtime.data.sizing import empty

    found = {one.split for one in result.findings}
    for source, one in zip(sources, result.splits, strict=True):
        if source.length is None and not one.read and not result.stopped and source.split not in found:
            raise empty(f"{source.split}_data")


def _say(text: str) -> None:
    """Print it.

    Raises:
        UserError: it cannot be written, as on a full disk.
    """
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be written is not tried again at the exit
        seen = f"the report cannot be written: {error.strerror}"
        raise UserError(explain(seen, "a stdout that takes it", next_step="--json FILE")) from None


def _workers(cores: int, sources: Sequence["Source"]) -> int:
    """One a core, but no more than can have work."""
    lengths = [1 if source.length is None else source.length for source in sources]
    return max(1, min(cores, sum(lengths)))


def _sources(recipe: "Recipe", config: Config, split: str) -> list["Source"]:
    """The data sets that are asked for.

    Raises:
        UserError: there is no such set, it is empty, or making it raised.
    """
    from torch.utils.data import IterableDataset

    from lockstep.runtime.data.sizing import sized
    from lockstep.runtime.scanning.reading import Source
    from lockstep.runtime.scanning.telling import told

    sources = []
    for name in _SPLITS[split]:
        try:
            data = recipe.train_data() if name == "train" else recipe.val_data()
        except LockstepError:
            raise
        except (Exception, SystemExit) as error:
            seen = f"{name}_data() raised {told(error)}"
            raise UserError(explain(seen, "the data set can be made", config.recipe)) from error
        if data is None and split == "val":
            seen = f"the recipe {config.recipe} has no validation set"
            raise UserError(explain(seen, "a set to read", "--split val", "leave it out"))
        if data is not None:
            stream = name == "train" and isinstance(data, IterableDataset)
            sources.append(Source(name, data, None if stream else sized(data, f"{name}_data")))
    return sources
