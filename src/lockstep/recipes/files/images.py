"""One picture, one mask: from a file to pixels and class numbers, in 8 bits."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lockstep.recipes.files.bad import BadFile, decoding, require_file

if TYPE_CHECKING:
    from PIL.Image import Image, Transpose

Exif = Literal["fit", "apply", "ignore"]

_ORIENTATION = 0x0112
# Pillow spreads grey values of few bits over 0 .. 255; labels are the values as they were written.
_GREY_STEPS = {"L;2": 85, "L;4": 17}


@contextmanager
def opened(path: Path) -> "Iterator[Image]":
    """A picture whose size is known and whose pixels are not decoded yet. Only calls of Pillow belong into the block.

    Raises:
        BadFile: it cannot be opened or, in the block, decoded.
    """
    from PIL import Image

    require_file(path)
    with decoding(path), Image.open(path) as image:
        yield image


def turn_of(image: "Image") -> "Transpose | None":
    """How the camera says a picture has to be turned; None for not at all, or where its metadata cannot be read."""
    from PIL.Image import Transpose

    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, LookupError, TypeError, struct.error):  # what broken metadata raises
        return None
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return turns.get(orientation)


def swaps_sides(turn: "Transpose | None") -> bool:
    """Whether a turned picture is as wide as it was high."""
    from PIL.Image import Transpose

    return turn in (Transpose.TRANSPOSE, Transpose.TRANSVERSE, Transpose.ROTATE_90, Transpose.ROTATE_270)


def in_colour(image: "Image", path: Path) -> "Image":
    """The picture in RGB: grey, palettes, CMYK are converted, transparency is dropped.

    Raises:
        BadFile: more than 8 bits a channel, for which there is no right scale.
    """
    if image.mode.startswith("I") or image.mode == "F":
        what = f"has {bits(image)} (mode {image.mode})"
        raise BadFile(path, what, "8 bits a channel: say yourself which values are black and white")
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def bits(image: "Image") -> str:
    """The depth of a picture that has more than 8 bits."""
    return "16-bit values" if image.mode.startswith("I;16") else "32-bit values"


def read_mask(path: Path, classes: int, ignore: int) -> NDArray[np.uint8]:
    """The class of every pixel: (height, width).

    Args:
        path: a picture of one 8-bit channel: a palette's indices, or grey values.
        classes: labels are 0 .. classes - 1.
        ignore: a further label that is allowed.

    Raises:
        BadFile: it cannot be read, holds colours or more than 8 bits, or a label outside the classes.
    """
    with opened(path) as image:
        must = "one channel of 8 bits that holds class numbers, with or without a palette"
        if image.mode.startswith("I") or image.mode == "F":
            raise BadFile(path, f"is a mask of {bits(image)} (mode {image.mode})", must)
        if image.mode not in ("P", "L", "1"):
            raise BadFile(path, f"holds colours (mode {image.mode}), not class numbers", must)
        raw = str(getattr(image, "tile", ""))  # told before the pixels are decoded, such as L;4
        labels = np.asarray(image).astype(np.uint8)
    labels //= np.uint8(next((step for mode, step in _GREY_STEPS.items() if mode in raw), 1))
    _check_labels(labels, path, classes, ignore)
    return labels


def _check_labels(labels: NDArray[np.uint8], path: Path, classes: int, ignore: int) -> None:
    from PIL import Image

    counts = np.array(Image.fromarray(labels).histogram())
    counts[:classes] = 0
    counts[ignore] = 0
    if not counts.any():
        return
    value = int(counts.argmax())
    row, column = (int(place) for place in np.argwhere(labels == value)[0])
    others = int((counts > 0).sum()) - 1
    more = f", and {others} more such labels" if others else ""
    what = f"holds label {value} ({int(counts[value])} px, first in row {row}, column {column}){more}"
    raise BadFile(path, what, f"0 .. {classes - 1}, or {ignore} (ignored)")


def read_pair(
    image_path: Path, mask_path: Path, classes: int, ignore: int, exif: Exif
) -> "tuple[Image, NDArray[np.uint8]]":
    """A picture and its mask of the same size.

    Args:
        image_path, mask_path: the files.
        classes, ignore: as for `read_mask`.
        exif: whether a picture is turned as its camera says: `apply`, `ignore`, or `fit`, where the mask decides: it
            has the size of the turned or of the unturned picture.

    Raises:
        BadFile: one of them cannot be read, or they do not fit.
    """
    with opened(image_path) as image:
        turn = turn_of(image)
        picture = in_colour(image, image_path)
        picture.load()
    mask = read_mask(mask_path, classes, ignore)
    if turn is not None and _turned(picture, mask, swaps_sides(turn), image_path, exif):
        picture = picture.transpose(turn)
    width, height = picture.size
    if mask.shape != (height, width):
        what = f"is {mask.shape[1]} x {mask.shape[0]} px, its image {width} x {height} px"
        raise BadFile(mask_path, what, "an image and its mask have the same size")
    return picture, mask


def _turned(picture: "Image", mask: NDArray[np.uint8], swaps: bool, path: Path, exif: Exif) -> bool:
    if exif != "fit":
        return exif == "apply"
    width, height = picture.size
    if swaps and width != height:
        return mask.shape == (width, height)
    what = "is to be turned (EXIF orientation), and its mask fits both ways"
    raise BadFile(path, what, "set options.exif=apply if the masks were drawn on turned pictures, else ignore")
