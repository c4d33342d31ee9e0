"""`lockstep init`: a small project that trains at once, from nothing."""

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template

from lockstep.core.errors import UserError, explain
from lockstep.core.outcome import Exit

SCHEMA_FILE = ".config.schema.json"
"""What editors check config.yaml with."""

# What a folder may hold that is about to become a project: a fresh repository's files, an environment, an editor's.
KEPT = frozenset(
    (
        *(".git", ".gitattributes", ".gitignore", ".github", ".gitlab-ci.yml", "README.md", "LICENSE", "LICENSE.md"),
        *(".venv", "venv", ".python-version", ".envrc", ".editorconfig", ".idea", ".vscode", ".DS_Store"),
    )
)
OTHER_NAMES = {"gitignore": ".gitignore"}  # as it is kept here, where it must not hide anything
SHOWN = 5


def init(folder: Path) -> Exit:
    """Write a project into a folder, and say what to type next.

    Args:
        folder: made where it is missing, with the folders above it. What it holds is never overwritten.

    Raises:
        UserError: it holds a project or anything else already, is a file, or cannot be written; nothing is left then.
    """
    kept = check_folder(folder)
    name = Path.cwd().joinpath(folder).resolve().name or "project"
    package = package_name(name)
    texts = {path: text for path, text in project(name, package).items() if path.parts[0] not in kept}
    _write(folder, texts)
    print(f"Made {_said(folder)}: {', '.join(sorted({_top(path) for path in texts}))}")
    if kept_back := sorted(kept & {path.parts[0] for path in project(name, package)}):
        print(f"Left as it was: {', '.join(kept_back)}")
    if package != name:
        print(f"In pyproject.toml it is called {package}: a package's name has only a-z, 0-9 and -.")
    print(_next(folder))
    return Exit.DONE


def check_folder(folder: Path) -> set[str]:
    """What the folder holds and may keep.

    Raises:
        UserError: it is no folder, cannot be read, or holds something else.
    """
    must = "a new or an empty folder; what is there is never overwritten"
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        if not folder.is_symlink():
            return set()
        raise UserError(
            explain(f"{folder} is a link to nothing", must, next_step="remove it, or name another")
        ) from None
    except NotADirectoryError:
        raise UserError(
            explain(f"{folder} is not a folder", must, next_step="name another: lockstep init DIR")
        ) from None
    except OSError as error:
        raise _unwritten(folder, error) from None
    others = [name for name in names if name not in KEPT]
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        seen = f"{_said(folder)} is not empty: {', '.join(others[:SHOWN])}{more}"
        raise UserError(explain(seen, must, next_step="lockstep init DIR makes the project in DIR"))
    return set(names)


def package_name(name: str) -> str:
    """A folder's name as that of a package: `My Project_2` becomes `my-project-2`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "project"


def project(name: str, package: str) -> dict[PurePosixPath, str]:
    """Path in the project -> text.

    Args:
        name: what people call it, usually its folder's name. package: the same as a package's name.
    """
    from lockstep.schema import schema_text

    values = {"name": _printable(name), "package": package}
    root = resources.files("lockstep").joinpath("templates/project")
    texts = {path: _filled(path, text, values) for path, text in _files(root, PurePosixPath())}
    return texts | {PurePosixPath(SCHEMA_FILE): schema_text()}


def _filled(path: PurePosixPath, text: str, values: Mapping[str, str]) -> str:
    """Python files are as they are: nothing in them has the project's name, which need not be one in Python."""
    return text if path.suffix == ".py" or path.name == ".gitignore" else Template(text).substitute(values)


def _printable(name: str) -> str:
    """A name in one line of text; a file name may hold anything."""
    return "".join(one if one.isprintable() else "?" for one in name)


def _files(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.startswith((".", "__")):  # what Python and other tools leave beside the sources
            continue
        path = at / OTHER_NAMES.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _files(entry, path)
        else:
            yield path, entry.read_text(encoding="utf-8")


def _write(folder: Path, texts: Mapping[PurePosixPath, str]) -> None:
    try:
        with _all_or_nothing() as made:
            for path, text in texts.items():
                target = folder / path
                _make_folder(target.parent, made)
                with target.open("x", encoding="utf-8") as file:  # never over one that is there
                    made.append(target)
                    file.write(text)
    except OSError as error:
        raise _unwritten(folder, error) from None


@contextmanager
def _all_or_nothing() -> Iterator[list[Path]]:
    """Collects what is made, and removes it where the block fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _make_folder(folder: Path, made: list[Path]) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _unwritten(folder: Path, error: OSError) -> UserError:
    place = f"{error.filename}: " if error.filename and Path(error.filename) != folder else ""
    seen = f"{_said(folder)} cannot be written: {place}{error.strerror}"
    return UserError(explain(seen, "a folder with write access and some room", next_step="nothing was left there"))


def _said(folder: Path) -> str:
    return "the current folder" if folder == Path() else f"{folder}/"


def _top(path: PurePosixPath) -> str:
    return path.parts[0] + ("/" if len(path.parts) > 1 else "")


def _next(folder: Path) -> str:
    lines = [
        *([] if folder == Path() else [(f"cd {shlex.quote(str(folder))}", "")]),
        ("lockstep train config.yaml", "train it: all GPUs, or 2 processes on a CPU (about 20 s)"),
        ("lockstep verify config.yaml", "prove that two ranks are the same training as one"),
        ("pytest", "the same proof, as a test"),
    ]
    width = max(len(command) for command, about in lines if about) + 3
    return "\n".join(["Next:", *(f"  {command:<{width}}{about and '# '}{about}".rstrip() for command, about in lines)])
