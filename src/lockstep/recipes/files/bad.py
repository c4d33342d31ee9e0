"""What is wrong with a file, in words; and folders and packages without which there is nothing to read."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from lockstep.core.errors import UserError, explain

# Of the process or the machine, not of the file that was being opened.
_NOT_THE_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_MAGIC = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"BM": "BMP", b"RIFF": "WebP"}


class BadFile(Exception):  # noqa: N818  # said of the file, not of the program
    """A file that is no picture or no mask.

    Args:
        path: the file.
        what: what it is instead, as the end of a sentence that begins with its name.
        must: what has to hold.
    """

    def __init__(self, path: Path, what: str, must: str = "a picture that Pillow can read") -> None:
        super().__init__(f"{shown(path)} {what}")
        self.path, self.what, self.must = path, what, must

    def error(self, root: Path, sample: str) -> UserError:
        """The error for a user.

        Args:
            root: folder of the data set; the file is named relative to it.
            sample: which sample was read.
        """
        return UserError(
            explain(
                f"{relative(self.path, root)} {self.what}",
                must=self.must,
                where=f"{sample}, {shown(self.path)}",
                next_step="mend or replace the file, or take its sample out; lockstep scan CONFIG names all such files",
            )
        )


def shown(path: Path | str) -> str:
    """A path as text that any stream can print, also where its name is no Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def relative(path: Path, root: Path) -> str:
    """A path below the root, as people write it."""
    return shown(path.relative_to(root) if path.is_relative_to(root) else path)


def require_pillow(recipe: str) -> None:
    """Refuse to go on without Pillow.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("PIL") is None:
        seen = f"the recipe {recipe} reads pictures with Pillow, which is not installed"
        raise UserError(explain(seen, next_step="pip install pillow"))


def require_file(path: Path) -> None:
    """Refuse what cannot be a picture, before anything is opened: a named pipe would be waited for.

    Raises:
        BadFile: missing, a folder, empty, not a regular file, or not to be reached.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise BadFile(path, _of_the_system(error, path)) from None
    except ValueError as error:
        raise BadFile(path, f"is a name that no file can have: {error}") from None
    if stat.S_ISDIR(found.st_mode):
        raise BadFile(path, "is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(path, "is no regular file")
    if found.st_size == 0:
        raise BadFile(path, "is empty (0 bytes)")


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn whatever Pillow raises about a file into a `BadFile`, and its warnings into silence.

    Only calls of Pillow belong into the block: a hostile file makes it raise errors of almost any kind.
    """
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Odd metadata is told once for each file and says nothing about the picture.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (BadFile, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NOT_THE_FILE:
            raise
        raise BadFile(path, _of_pillow(error, path)) from None


def _of_the_system(error: OSError, path: Path) -> str:
    if error.errno == errno.ELOOP:
        return "is a symbolic link that leads in a circle"
    if isinstance(error, FileNotFoundError):
        return (
            f"is a symbolic link to {shown(path.readlink())}, which is not there"
            if path.is_symlink()
            else ("is missing: there is no such file")
        )
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied"
    return f"cannot be read: {error.strerror}"


def _of_pillow(error: Exception, path: Path) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        pixels = re.search(r"\d+", str(error))
        return f"is {pixels[0] if pixels else 'too many'} px large, more than the {Image.MAX_IMAGE_PIXELS} allowed"
    if isinstance(error, UnidentifiedImageError):
        with path.open("rb") as file:
            first = file.read(16)
        kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), None)
        return f"is broken or truncated: it begins like a {kind}" if kind else f"is not an image: it begins {first!r}"
    if isinstance(error, OSError) and error.errno is not None:
        return _of_the_system(error, path)
    if "truncated" in str(error).lower():
        return "is truncated: the file ends before the picture does"
    return f"is broken: {error or type(error).__name__}"
