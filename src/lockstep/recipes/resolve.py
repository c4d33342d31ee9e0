"""From the name of a recipe and its options to the recipe. torch is imported only when one is loaded."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.core.errors import LockstepError, UserError, explain
from lockstep.recipes import BUILTIN
from lockstep.recipes.names import FileName, check_recipe_name, locate, no_such_class, syntax_error
from lockstep.recipes.options import check_options

if TYPE_CHECKING:
    from lockstep.runtime.recipe import Recipe

__all__ = ["check_recipe_name", "load_recipe", "recipe_class"]

T = TypeVar("T")

_loaded: dict[str, Path] = {}
"""Modules that were loaded from a user's file, by name; another file may take such a name over."""


def load_recipe(name: str, options: Mapping[str, Any], folder: Path | None = None) -> "Recipe":
    """Make the recipe that a config names.

    Args:
        name: a built-in name, `path.py:Class`, or `path.py` where the file has one recipe only.
        options: keyword arguments for the recipe's class.
        folder: where a relative path is looked up first, usually that of the config file; then the current one.

    Raises:
        UserError: the name, the file, the class or an option is wrong, or the user's code raised; the message says
            where in the user's file.
    """
    recipe = recipe_class(name, folder)
    values = check_options(recipe, options)
    path = Path(inspect.getfile(recipe))
    return _run_theirs(lambda: recipe(**values), path, f"{recipe.__name__}(...) raised")


def recipe_class(name: str, folder: Path | None = None) -> "type[Recipe]":
    """The class that a recipe's name stands for; arguments and errors as for `load_recipe`."""
    if name in BUILTIN:
        module_name, _, class_name = BUILTIN[name].partition(":")
        builtin: type[Recipe] = getattr(importlib.import_module(module_name), class_name)
        return builtin
    file = locate(name, folder)
    module = _import_file(file.path)
    return _pick(module, file) if file.class_name is None else _named(module, file, file.class_name)


def _named(module: ModuleType, file: FileName, class_name: str) -> "type[Recipe]":
    if not hasattr(module, class_name):
        raise no_such_class(file, [value.__name__ for value in _own_classes(module)])
    return _checked(getattr(module, class_name), class_name, file)


def _pick(module: ModuleType, file: FileName) -> "type[Recipe]":
    from lockstep.runtime.recipe import Recipe

    recipes = [value for value in _own_classes(module) if issubclass(value, Recipe)]
    complete = [value for value in recipes if not inspect.isabstract(value)] or recipes
    if len(complete) == 1:
        return _checked(complete[0], complete[0].__name__, file)
    found = ", ".join(value.__name__ for value in complete) or "none"
    raise UserError(
        explain(
            f"{file.path.name} defines {len(complete)} recipes, not one: {found}",
            must="a path without a class names a file with exactly one subclass of lockstep.runtime.recipe.Recipe",
            where=str(file.path),
            next_step=f"write recipe={file.typed}:{complete[0].__name__ if complete else 'Class'}",
        )
    )


def _own_classes(module: ModuleType) -> list[type]:
    values = vars(module).values()
    return [value for value in values if isinstance(value, type) and value.__module__ == module.__name__]


def _checked(value: object, class_name: str, file: FileName) -> "type[Recipe]":
    from lockstep.runtime.recipe import Recipe

    required = sorted(Recipe.__abstractmethods__)
    if isinstance(value, type) and issubclass(value, Recipe):
        missing = sorted(value.__abstractmethods__)
        seen = f"the recipe {class_name} does not define {', '.join(missing)}"
    elif isinstance(value, type):
        missing = [name for name in required if not callable(getattr(value, name, None))]
        seen = f"the class {class_name} is not a Recipe" + (f", and lacks {', '.join(missing)}" if missing else "")
        missing = missing or ["Recipe"]
    else:
        missing = required
        seen = f"{class_name} is not a class but {type(value).__name__}"
    if not missing:
        recipe: type[Recipe] = value  # type: ignore[assignment]  # narrowed above
        return recipe
    raise UserError(
        explain(
            seen,
            must=f"a recipe is a class with Recipe as its base that defines {', '.join(required)}",
            where=str(file.path),
            next_step="import Recipe from lockstep.runtime.recipe, derive the class from it, add what is missing",
        )
    )


def _import_file(path: Path) -> ModuleType:
    """Import a file under its own name, so that pickles and DataLoader workers find it again."""
    name = path.stem
    present = sys.modules.get(name)
    if present is not None and _loaded.get(name) == path:
        return present
    if present is not None and name not in _loaded:
        _refuse_clash(path, present)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)
    # First on the path, as for `python file.py`: the recipe's own siblings win over installed packages.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        _run_theirs(lambda: loader.exec_module(module), path, f"importing {path.name} raised")
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _loaded[name] = path
    return module


def _refuse_clash(path: Path, present: ModuleType) -> None:
    raise UserError(
        explain(
            f"the recipe's file has the name of a module that is in use: {path.stem!r}",
            must="a name of its own, since Python keeps one module per name",
            where=f"{path}, and {getattr(present, '__file__', None) or 'built into Python'}",
            next_step=f"rename it, for example to my_{path.name}",
        )
    )


def _run_theirs(call: Callable[[], T], path: Path, what: str) -> T:
    """Run code of the user; what it raises becomes a UserError that points into their file."""
    try:
        return call()
    except LockstepError:
        raise
    except SyntaxError as error:
        raise syntax_error(error, path) from None
    except (Exception, SystemExit) as error:
        raise UserError(
            explain(
                f"{what} {type(error).__name__}: {error}",
                must="the recipe can be imported and made with these options",
                where=_where(error, path),
                next_step="correct that line, or the option that leads to it",
            )
        ) from error


def _where(error: BaseException, path: Path) -> str:
    """The innermost frame in the folder of the user's file; the innermost at all where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent)]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}" + (f": {frame.line}" if frame.line else "")
