"""Names of files, found without opening any: one look at each folder, names equal however Unicode composes them."""

import os
import unicodedata
from difflib import get_close_matches
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import shown

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
"""Of pictures, in whatever case; where one name has several, the first of these is read."""
LOSSLESS = (".png", ".bmp", ".gif", ".tif", ".tiff")
"""Of masks: other kinds keep no exact values."""


def plain(name: str) -> str:
    """A name in one form of Unicode: an é may be written as one character or as two, and disks change it."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def is_picture(name: str) -> bool:
    """Whether a file is called like a picture, and is not one of the hidden files that some systems leave."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def stem(name: str) -> str:
    """A name without the suffix of a picture."""
    return name[: name.rindex(".")] if is_picture(name) else name


def entries(folder: Path) -> list[str]:
    """The names in a folder, sorted the same way on every machine.

    Raises:
        UserError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found]
    except OSError as error:
        seen = f"the folder {shown(folder)} cannot be read: {(error.strerror or '').lower()}"
        raise UserError(explain(seen, "a folder of pictures that can be listed", shown(folder))) from None
    return sorted(names, key=lambda name: (plain(name), name))


class Pictures:
    """The pictures below a folder by name, without suffix; each folder is listed once, when first asked for.

    Args:
        folder: the folder.
        suffixes: of the pictures that are looked for, some of `SUFFIXES`; the first is preferred.
    """

    def __init__(self, folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
        self.folder, self.suffixes = folder, suffixes
        self._by_stem: dict[str, dict[str, list[str]]] = {}

    def find(self, name: str) -> str | None:
        """The file of a name such as `a` or `city/a`, relative to the folder; None where there is none."""
        parent, _, last = name.rpartition("/")
        found = self._names(parent).get(plain(last))
        if found is None:
            return None
        return f"{parent}/{found[0]}" if parent else found[0]

    def all(self) -> dict[str, list[str]]:
        """The pictures of the folder itself: stem -> files, the one that is read first."""
        return self._names("")

    def _names(self, parent: str) -> dict[str, list[str]]:
        if parent not in self._by_stem:
            names: dict[str, list[str]] = {}
            folder = self.folder / parent
            for name in entries(folder) if folder.is_dir() else ():
                if is_picture(name) and name.lower().endswith(self.suffixes):
                    names.setdefault(plain(stem(name)), []).append(name)
            for same in names.values():
                same.sort(key=lambda name: self.suffixes.index(name[name.rindex(".") :].lower()))
            self._by_stem[parent] = names
        return self._by_stem[parent]


def require_folder(folder: Path, what: str, next_step: str = "") -> None:
    """Refuse a folder that is not there.

    Args:
        folder: the folder.
        what: what it is for.
        next_step: said where no folder of a similar name is beside it.

    Raises:
        UserError: it does not exist or is no folder.
    """
    try:
        if folder.is_dir():
            return
        found = "is no folder" if folder.exists() else "does not exist"
        beside = [one.name for one in folder.parent.iterdir() if one.is_dir()] if folder.parent.is_dir() else []
    except OSError as error:
        found, beside = f"cannot be reached: {(error.strerror or '').lower()}", []
    close = get_close_matches(folder.name, beside, n=1)
    hint = f"did you mean {shown(folder.with_name(close[0]))}?" if close else next_step or "check the path"
    raise UserError(explain(f"{what} {shown(folder)} {found}", where="options.root", next_step=hint))
