"""What a recipe's name says, judged without torch: a launcher asks before it starts any rank."""

import ast
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from lockstep.core.errors import UserError, explain
from lockstep.recipes import BUILTIN

_ACCEPTED = "the name of a built-in recipe, or path.py:Class"


class FileName(NamedTuple):
    """A recipe in a file of the user.

    Attributes:
        path: the file, absolute; it exists.
        class_name: its class, None where the file is said to have only one.
        typed: the file as the user wrote it.
    """

    path: Path
    class_name: str | None
    typed: str


def check_recipe_name(name: str, folder: Path | None = None) -> None:
    """Refuse a recipe name that cannot work, without importing torch or running the user's file.

    Args:
        name: a built-in name, `path.py:Class`, or `path.py`.
        folder: where a relative path is looked up first, usually that of the config file; then the current one.

    Raises:
        UserError: no such built-in, no such file, a syntax error in it, or no such class.
    """
    if name in BUILTIN:
        return
    file = locate(name, folder)
    module = _parse(file.path)
    bound = _bound_names(module)
    if file.class_name and bound is not None and file.class_name not in bound:
        raise no_such_class(file, _recipes_first([node for node in module.body if isinstance(node, ast.ClassDef)]))


def _recipes_first(classes: list[ast.ClassDef]) -> list[str]:
    """The names of a file's classes; those whose base is a recipe by its name, or is such a class, come first."""
    recipes: set[str] = set()
    for node in classes:
        bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        if bases & recipes or any(base.endswith("Recipe") for base in bases):
            recipes.add(node.name)
    return sorted((node.name for node in classes), key=lambda name: name not in recipes)


def locate(name: str, folder: Path | None) -> FileName:
    """Split a name of the form `path.py` or `path.py:Class` and find the file.

    Raises:
        UserError: the name has another form, the file does not exist, or Python could not import it by its name.
    """
    path_text, class_name = _split(name)
    tried = [(base / Path(path_text).expanduser()).resolve() for base in (folder, Path.cwd()) if base is not None]
    path = next((candidate for candidate in tried if candidate.is_file()), None)
    if path is None:
        raise _no_such_file(path_text, list(dict.fromkeys(tried)))
    if not path.stem.isidentifier():
        raise UserError(
            explain(
                f"Python cannot import a file that is named {path.name!r}",
                must="letters, digits and underscores before .py, so that DataLoader workers find the recipe again",
                where=str(path),
                next_step="rename the file",
            )
        )
    return FileName(path, class_name, path_text)


def no_such_class(file: FileName, candidates: list[str]) -> UserError:
    """The error for a class that its file does not define; `candidates` are those that it does."""
    close = get_close_matches(file.class_name or "", candidates, n=1)
    found = f"it defines {', '.join(candidates)}" if candidates else "it defines no class"
    return UserError(
        explain(
            f"{file.path.name} has no class {file.class_name!r}; {found}",
            must="path.py:Class names a class of that file",
            where=str(file.path),
            next_step=f"did you mean recipe={file.typed}:{close[0]}?" if close else "correct the name after the colon",
        )
    )


def _split(name: str) -> tuple[str, str | None]:
    if name.endswith(".py"):
        return name, None
    path, separator, class_name = name.rpartition(".py:")
    if separator and class_name.isidentifier():
        return path + ".py", class_name
    raise _no_such_name(name)


def _no_such_name(name: str) -> UserError:
    close = get_close_matches(name, BUILTIN, n=1)
    hint = f"did you mean recipe={close[0]}?" if close else "take one of these, or write path/to/file.py:Class"
    return UserError(
        explain(
            f"there is no recipe {name!r}; built in are {', '.join(BUILTIN)}",
            must=_ACCEPTED,
            where="recipe",
            next_step=hint,
        )
    )


def _no_such_file(path: str, tried: list[Path]) -> UserError:
    folder = tried[0].parent
    near = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
    close = get_close_matches(tried[0].name, near, n=1)
    hint = f"did you mean {tried[0].with_name(close[0])}?" if close else "check the path; a relative one starts there"
    return UserError(
        explain(
            f"the recipe file {path!r} does not exist",
            must=_ACCEPTED,
            where="looked for " + " and ".join(str(candidate) for candidate in tried),
            next_step=hint,
        )
    )


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise syntax_error(error, path) from None
    except (OSError, ValueError) as error:
        raise UserError(explain(f"the recipe file cannot be read: {error}", where=str(path))) from None


def syntax_error(error: SyntaxError, path: Path) -> UserError:
    """The error for a file that is not Python, with the line as its author wrote it."""
    line = (error.text or "").strip()
    return UserError(
        explain(
            f"{error.msg}: {line}" if line else error.msg,
            must="the recipe's file is valid Python",
            where=f"{error.filename}:{error.lineno}" if error.lineno else str(path),
            next_step="correct that line",
        )
    )


def _bound_names(module: ast.Module) -> set[str] | None:
    """Names that the top level of a module may bind, in whatever branch; None where a star import hides them."""
    names: set[str] = set()
    queue: list[ast.AST] = [module]
    while queue:
        for node in ast.iter_child_nodes(queue.pop()):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    names.add(node.name)
                case ast.alias():
                    names.add((node.asname or node.name).split(".")[0])
                case ast.Name(ctx=ast.Store()):
                    names.add(node.id)
                case _:
                    queue.append(node)
    return None if "*" in names else names
