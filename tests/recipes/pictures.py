"""Real folders of pictures for tests: a good one, and faults planted in it, each with a name.

root = voc_folder(tmp_path / "voc")
planted = plant(root, "mask_missing", "jpeg_truncated")
root = class_folder(tmp_path / "digits")
"""

import io
import os
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = 4
"""Classes 1 .. SHAPES are drawn: squares, discs, triangles, rings; 0 is the background, 255 their border."""
COLOURS = [(40, 44, 52), (224, 64, 48), (48, 176, 80), (64, 96, 232), (232, 200, 56)]


def voc_folder(root: Path, train: int = 8, val: int = 4, sides: tuple[int, int] = (40, 64), seed: int = 0) -> Path:
    """A sound folder in the layout of Pascal VOC: JPEG images, palette masks, split lists.

    Args:
        root: made; JPEGImages/, SegmentationClass/ and ImageSets/Segmentation/ come into it.
        train, val: samples of each list.
        sides: smallest and largest width and height in px; every image has a size of its own.
        seed: another seed draws other pictures.

    Returns:
        `root`.
    """
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    names = [f"2007_{number:06d}" for number in range(train + val)]
    for name in names:
        image, mask = scene(rng, rng.randint(*sides), rng.randint(*sides))
        image.save(root / "JPEGImages" / f"{name}.jpg", quality=92)
        mask.save(root / "SegmentationClass" / f"{name}.png")
    for split, part in {"train": names[:train], "val": names[train:], "trainval": names}.items():
        _list(root, split).write_text("".join(f"{name}\n" for name in part), encoding="utf-8")
    return root


def scene(rng: random.Random, width: int, height: int) -> tuple[Image.Image, Image.Image]:
    """A picture with two or three shapes, and its mask in palette mode: (RGB image, mask)."""
    shade = rng.randint(-20, 20)
    image = Image.new("RGB", (width, height), tuple(part + shade for part in COLOURS[0]))
    mask = Image.new("P", (width, height), 0)
    mask.putpalette(palette())
    for _ in range(rng.randint(2, 3)):
        which = rng.randint(1, SHAPES)
        side = rng.randint(min(width, height) // 3, min(width, height) // 2)
        left, top = rng.randint(0, width - side), rng.randint(0, height - side)
        colour = tuple(min(255, max(0, part + rng.randint(-24, 24))) for part in COLOURS[which])
        for canvas, fill, edge in ((image, colour, colour), (mask, which, 255)):
            _draw(ImageDraw.Draw(canvas), which, (left, top, left + side - 1, top + side - 1), fill, edge)
    return image, mask


def _draw(draw: ImageDraw.ImageDraw, which: int, box: tuple[int, int, int, int], fill: object, edge: object) -> None:
    left, top, right, bottom = box
    if which == 1:
        draw.rectangle(box, fill, edge)  # type: ignore[arg-type]  # a number in a mask, a colour in an image
    elif which == 2:
        draw.ellipse(box, fill, edge)  # type: ignore[arg-type]
    elif which == 3:
        draw.polygon([((left + right) // 2, top), (right, bottom), (left, bottom)], fill, edge)  # type: ignore[arg-type]
    else:
        draw.ellipse(box, None, fill, width=max(3, (right - left) // 4))  # type: ignore[arg-type]


def palette() -> list[int]:
    """The colours of Pascal VOC: 256 x (red, green, blue), from the bits of the label."""
    colours = []
    for label in range(256):
        rgb = [0, 0, 0]
        for bit in range(8):
            for channel in range(3):
                rgb[channel] |= (label >> (3 * bit + channel) & 1) << (7 - bit)
        colours += rgb
    return colours


def class_folder(root: Path, classes: Sequence[str] = ("nought", "one", "two"), train: int = 8, val: int = 4) -> Path:
    """A sound folder with one folder for each class: scikit-learn's digits 0, 1, 2 ... as JPEG and PNG.

    Args:
        root: made; root/train/CLASS/ and root/val/CLASS/ come into it. Without `val`, the classes lie in root itself.
        classes: names of folders; the first shows digit 0, and so on.
        train, val: images of each class.

    Returns:
        `root`.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    for digit, name in enumerate(classes):
        mine = images[digits == digit][: train + val].reshape(-1, 8, 8)
        for number, ink in enumerate(mine):
            split = (("train",) if number < train else ("val",)) if val else ()
            folder = root.joinpath(*split, name)
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray((ink * (255 / 16)).astype(np.uint8)).resize((24, 24), Image.Resampling.BICUBIC)
            kind = "png" if number % 2 else "jpg"
            picture.convert("RGB" if number % 4 else "L").save(folder / f"{name}_{number:03d}.{kind}")
    return root


@dataclass(frozen=True)
class Planted:
    """One fault.

    Attributes:
        fault: its name, a key of `FAULTS`, `ODD` or `STRAYS`.
        sample: the name in the split list, without a suffix.
        index: of the sample in the split that it was planted in; None for a file that makes no sample.
        file: the guilty file, relative to the root, with `/`.
        says: words of which a good message has each.
    """

    fault: str
    sample: str
    index: int | None
    file: str
    says: tuple[str, ...]


def plant(root: Path, *faults: str, split: str = "train") -> list[Planted]:
    """Add a sample with each of these faults to a folder made by `voc_folder`, at the end of a split list.

    Args:
        root: of the folder.
        faults: keys of `FAULTS` (a sample that cannot be read), `ODD` (one that can, and teaches nothing) or `STRAYS`
            (files that make no sample).
        split: list that the samples are added to.
    """
    return [_plant(root, fault, split) for fault in faults]


def _plant(root: Path, fault: str, split: str) -> Planted:
    name = f"bad_{fault}"
    image, mask = root / "JPEGImages" / f"{name}.jpg", root / "SegmentationClass" / f"{name}.png"
    picture, labels = scene(random.Random(fault), 48, 40)
    picture.save(image, quality=92)
    labels.save(mask)
    make, guilty, says = {**FAULTS, **ODD, **STRAYS}[fault]
    make(image, mask)
    index = None
    if fault not in STRAYS:
        text = _list(root, split).read_text(encoding="utf-8")
        index = len(text.split())
        _list(root, split).write_text(f"{text}{name}\n", encoding="utf-8")
    file = {"image": image, "mask": mask}[guilty].relative_to(root).as_posix()
    return Planted(fault, name, index, file, says)


def _list(root: Path, split: str) -> Path:
    return root / "ImageSets" / "Segmentation" / f"{split}.txt"


# ---- faults: each spoils a sound image and its mask ----


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _mask_like(mask: Path, mode: str) -> None:
    labels = np.asarray(Image.open(mask))
    if mode == "I;16":
        Image.fromarray(labels.astype(np.uint16)).save(mask)
    else:
        Image.open(mask).convert(mode).save(mask)


def _other_size(mask: Path) -> None:
    Image.open(mask).resize((24, 20), Image.Resampling.NEAREST).save(mask)


def _label(mask: Path, value: int) -> None:
    with Image.open(mask) as opened:
        opened.putpixel((3, 2), value)
        opened.save(mask)


def _all_ignored(mask: Path) -> None:
    with Image.open(mask) as opened:
        opened.paste(255, (0, 0, *opened.size))
        opened.save(mask)


def _bomb(image: Path) -> None:
    """A PNG whose header says 30000 x 30000 px."""
    data = io.BytesIO()
    Image.new("1", (8, 8)).save(data, "png")
    header = b"IHDR" + struct.pack(">II", 30_000, 30_000) + data.getvalue()[24:29]
    image.write_bytes(data.getvalue()[:12] + header + struct.pack(">I", zlib.crc32(header)) + data.getvalue()[33:])


def _unreadable(path: Path) -> None:
    """Root reads it all the same: see `tests/permissions.py`."""
    os.chmod(path, 0)  # noqa: PTH101


Fault = tuple[Callable[[Path, Path], object], str, tuple[str, ...]]

FAULTS: dict[str, Fault] = {
    "image_missing": (lambda image, _: image.unlink(), "image", ("there is no such file",)),
    "mask_missing": (lambda _, mask: mask.unlink(), "mask", ("there is no such file",)),
    "image_empty": (lambda image, _: _empty(image), "image", ("empty", "0 bytes")),
    "mask_empty": (lambda _, mask: _empty(mask), "mask", ("empty", "0 bytes")),
    "image_truncated": (lambda image, _: _truncated(image), "image", ("truncated",)),
    "mask_truncated": (lambda _, mask: _truncated(mask), "mask", ("truncated",)),
    "image_is_text": (lambda image, _: image.write_text("<html>404</html>\n" * 9), "image", ("not an image",)),
    "image_is_folder": (lambda image, _: _folder(image), "image", ("a folder",)),
    "image_loop": (lambda image, _: _loop(image), "image", ("symbolic link", "circle")),
    "image_bomb": (lambda image, _: _bomb(image), "image", ("900000000 px",)),
    "mask_16_bit": (lambda _, mask: _mask_like(mask, "I;16"), "mask", ("16-bit",)),
    "mask_rgba": (lambda _, mask: _mask_like(mask, "RGBA"), "mask", ("colours", "RGBA")),
    "mask_rgb": (lambda _, mask: _mask_like(mask, "RGB"), "mask", ("colours", "RGB")),
    "mask_other_size": (lambda _, mask: _other_size(mask), "mask", ("24 x 20", "48 x 40")),
    "mask_label_outside": (lambda _, mask: _label(mask, 77), "mask", ("label 77", "1 px")),
}
"""Samples that cannot be read: name -> (what is done, whose fault it is, words of the message)."""

ODD: dict[str, Fault] = {
    "mask_all_ignored": (lambda _, mask: _all_ignored(mask), "mask", ("ignored",)),
}
"""Samples that can be read and teach nothing."""

UNREADABLE: dict[str, Fault] = {
    "image_unreadable": (lambda image, _: _unreadable(image), "image", ("permission",)),
}
"""Only for a process that obeys permissions."""
FAULTS |= UNREADABLE

STRAYS: dict[str, Fault] = {
    "stray_mask": (lambda image, _: image.unlink(), "mask", ("no image",)),
}
"""Files that make no sample: a mask without an image."""

TWELVE = (
    "image_missing",
    "mask_missing",
    "image_empty",
    "image_truncated",
    "image_is_text",
    "image_is_folder",
    "image_loop",
    "mask_16_bit",
    "mask_rgba",
    "mask_other_size",
    "mask_label_outside",
    "stray_mask",
)
"""A dozen that any process can plant and find."""
