"""Split lists: text files with the name of one sample in each line."""

import re
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import shown
from lockstep.recipes.files.listing import entries, plain, require_folder, stem


def read_split(folder: Path, split: str) -> list[str]:
    """The names of a split, as its list has them, without the suffix of a picture.

    Blank lines, a byte order mark and either kind of line end are passed over.

    Args:
        folder: holds SPLIT.txt.
        split: name of the list.

    Raises:
        UserError: no such list, an empty one, text that is not UTF-8, a name outside the folder of the pictures, or
            one that is listed twice.
    """
    path = folder / f"{split}.txt"
    lines = _lines(folder, path, split)
    names: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name:
            continue
        name = _checked(name, path, number)
        if name in names:
            seen = f"{path.name} names {name!r} twice, in lines {names[name]} and {number}"
            raise UserError(explain(seen, "each sample once", shown(path), "take one of the two lines out"))
        names[name] = number
    if not names:
        raise UserError(explain(f"the split list {path.name} names no sample", "one name a line", shown(path)))
    return list(names)


def listed_names(folder: Path) -> set[str]:
    """The names in all lists that can be read."""
    names: set[str] = set()
    for name in entries(folder):
        with suppress(UserError):
            names.update(read_split(folder, name.removesuffix(".txt")) if name.endswith(".txt") else ())
    return names


def _lines(folder: Path, path: Path, split: str) -> list[str]:
    try:
        return re.split(r"\r\n|\r|\n", path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        seen = f"{path.name} is not UTF-8 text (byte 0x{error.object[error.start]:02x} in line {_line_of(error)})"
        raise UserError(explain(seen, "names in UTF-8", shown(path), "save the list as UTF-8")) from None
    except (FileNotFoundError, ValueError):
        raise _no_such_split(folder, split) from None
    except OSError as error:
        seen = f"the split list {path.name} cannot be read: {(error.strerror or '').lower()}"
        raise UserError(explain(seen, "a text file with one name a line", shown(path))) from None


def _line_of(error: UnicodeDecodeError) -> int:
    return error.object[: error.start].count(b"\n") + 1


def _no_such_split(folder: Path, split: str) -> UserError:
    require_folder(folder, "the folder of the split lists", "it holds train.txt and val.txt, one name a line")
    there = [name.removesuffix(".txt") for name in entries(folder) if name.endswith(".txt")]
    close = get_close_matches(split, there, n=1)
    seen = f"there is no split {split!r}; there are {', '.join(map(repr, there)) or 'none'}"
    hint = f"did you mean {close[0]!r}?" if close else "take one of these, or write the list"
    return UserError(explain(seen, "the name of a list, without .txt", shown(folder), hint))


def _checked(name: str, path: Path, number: int) -> str:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\0" in name:
        seen = f"{path.name} names {name!r} in line {number}"
        must = "names of files below the folder of the pictures: not absolute, without '..'"
        raise UserError(explain(seen, must, f"{shown(path)}:{number}"))
    return plain(stem(str(parts)))
