"""A folder in the layout of Pascal VOC as a data set: pictures, masks of class numbers, split lists."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import BadFile, shown
from lockstep.recipes.files.images import Exif, read_pair
from lockstep.recipes.files.listing import LOSSLESS, Pictures, require_folder
from lockstep.recipes.files.scene_views import SceneView
from lockstep.recipes.files.splits import listed_names, read_split

IMAGES, MASKS, LISTS = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"


class VocSet(Dataset[dict[str, Tensor]]):
    """The samples that a split list names, in its order.

    Only names are looked at when it is made: a sample that cannot be read is told when it is read.

    Args:
        root: holds JPEGImages/, SegmentationClass/ and ImageSets/Segmentation/.
        split: name of a list in ImageSets/Segmentation/, without .txt.
        classes: labels of masks are 0 .. classes - 1.
        ignore: a further label, of pixels that do not count.
        exif: whether pictures are turned as the camera says, see `read_pair`.
        view: makes a sample of a picture and its mask.

    Raises:
        UserError: a folder or the list is missing or wrong as a whole.
    """

    def __init__(self, root: Path, split: str, classes: int, ignore: int, exif: Exif, view: SceneView) -> None:
        require_layout(root)
        self.root, self.split = root, split
        self.classes, self.ignore, self.exif, self.view = classes, ignore, exif, view
        self.names = read_split(root / LISTS, split)
        pictures, masks = Pictures(root / IMAGES), Pictures(root / MASKS, LOSSLESS)
        found = [pictures.find(name) for name in self.names]
        if not any(found):
            seen = f"none of the {len(found)} names in {split}.txt has a picture, not even {self.names[0]!r}"
            must = f"a name in the list is the name of a file in {IMAGES}, without its suffix"
            raise UserError(explain(seen, must, shown(root / IMAGES)))
        # A file that is missing gets the name that it would have, for the message.
        self.images = [file or f"{name}.jpg" for file, name in zip(found, self.names, strict=True)]
        self.masks = [masks.find(name) or f"{name}.png" for name in self.names]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        paths = self.root / IMAGES / self.images[index], self.root / MASKS / self.masks[index]
        try:
            picture, mask = read_pair(*paths, self.classes, self.ignore, self.exif)
        except BadFile as bad:
            raise bad.error(self.root, f"sample {index} of {self.split}") from None
        return self.view(picture, mask)

    def where(self, index: int) -> str:
        """The two files of a sample, relative to the root."""
        return f"{IMAGES}/{shown(self.images[index])}, {MASKS}/{shown(self.masks[index])}"

    def strays(self) -> Iterator[tuple[str, str]]:
        """Files that make no sample of any split: (path relative to the root, what is wrong with it)."""
        images, listed = Pictures(self.root / IMAGES).all(), listed_names(self.root / LISTS)
        for name, files in Pictures(self.root / MASKS, LOSSLESS).all().items():
            for file in files[1:]:
                yield f"{MASKS}/{shown(file)}", f"is not read: {shown(files[0])} has the same name"
            if name not in images and name not in listed:
                yield f"{MASKS}/{shown(files[0])}", "is a mask, and there is no image of its name"


def require_layout(root: Path) -> None:
    """Refuse a root without the three folders of the layout.

    Raises:
        UserError: it names the folder that is missing, and a folder below that has the layout, if there is one.
    """
    require_folder(root, "the folder of the data set")
    if has_layout(root):
        return
    inner = next(filter(has_layout, _folders_below(root)), None)
    hint = f"set options.root={shown(inner)}" if inner else ""
    for folder in (IMAGES, MASKS, LISTS):
        require_folder(root / folder, f"the layout of Pascal VOC has a folder {folder};", hint)


def has_layout(folder: Path) -> bool:
    """Whether a folder has the three folders of the layout."""
    try:
        return all((folder / name).is_dir() for name in (IMAGES, MASKS, LISTS))
    except OSError:
        return False


def _folders_below(root: Path) -> Iterator[Path]:
    """Folders one and two levels below, only the first ones of many: the archive of VOC has VOCdevkit/VOC2012."""
    for folder in (root, *islice(_folders_in(root), 20)):
        yield from islice(_folders_in(folder), 20)


def _folders_in(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            yield from (Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
