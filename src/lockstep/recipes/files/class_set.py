"""A folder with one folder of pictures for each class as a data set."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.core.errors import UserError, explain
from lockstep.recipes.files.bad import BadFile, shown
from lockstep.recipes.files.class_views import ClassView
from lockstep.recipes.files.listing import entries, is_picture, plain, require_folder


class Labelled(NamedTuple):
    """A picture of a class: its file relative to the root, and the number of the class."""

    file: str
    label: int


class ClassSet(Dataset[dict[str, Tensor]]):
    """Pictures with the number of their class; a file is opened when its sample is read.

    Args:
        root: folder that the files are relative to.
        samples: files and labels.
        view: makes what a model sees of a file.
        name: of the set, for messages.
    """

    def __init__(self, root: Path, samples: Sequence[Labelled], view: ClassView, name: str) -> None:
        self.root, self.samples, self.view, self.name = root, samples, view, name

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        file, label = self.samples[index]
        try:
            return {"image": self.view(self.root / file), "label": torch.tensor(label)}
        except BadFile as bad:
            raise bad.error(self.root, f"sample {index} of {self.name}") from None

    def where(self, index: int) -> str:
        """The file of a sample, relative to the root."""
        return shown(self.samples[index].file)

    def strays(self) -> Iterator[tuple[str, str]]:
        """What lies in the folders of the classes and is not read: (path relative to the root, why)."""
        for folder in dict.fromkeys(sample.file.rpartition("/")[0] for sample in self.samples):
            for name in entries(self.root / folder):
                if name.startswith("."):
                    continue
                if (self.root / folder / name).is_dir():
                    yield f"{folder}/{shown(name)}", "is a folder in the folder of a class, and is not read"
                elif not is_picture(name):
                    yield f"{folder}/{shown(name)}", "is not called like a picture, and is not read"

    def counts(self) -> Counter[int]:
        """How many samples each class has."""
        return Counter(sample.label for sample in self.samples)


def class_names(folder: Path) -> list[str]:
    """The folders in a folder, sorted; hidden ones are none.

    Raises:
        UserError: there are fewer than two.
    """
    names = _folders(folder)
    if len(names) < 2:
        seen = f"{shown(folder)} has {f'one class, {shown(names[0])!r}' if names else 'no folder of a class'}"
        must = "one folder for each of two or more classes, with the pictures in it"
        deeper = names and len(_folders(folder / names[0])) > 1
        hint = f"the classes seem to lie one folder deeper: {shown(folder / names[0])}" if deeper else ""
        raise UserError(explain(seen, must, "options.root", hint))
    return names


def _folders(folder: Path) -> list[str]:
    return [name for name in entries(folder) if not name.startswith(".") and _is_folder(folder / name)]


def labelled(root: Path, split: str, classes: Sequence[str]) -> list[Labelled]:
    """The pictures of each class below root/SPLIT/ (root/ itself where the split is ""), by class and name.

    Raises:
        UserError: a folder that is no class, or no picture at all.
    """
    folder = root / split
    require_folder(folder, "the folder of the pictures")
    numbers = {plain(name): number for number, name in enumerate(classes)}
    samples = []
    for name in _folders(folder):
        if plain(name) not in numbers:
            raise _unknown(folder / name, classes)
        prefix = f"{split}/{name}" if split else name
        label = numbers[plain(name)]
        samples += [Labelled(f"{prefix}/{file}", label) for file in entries(folder / name) if is_picture(file)]
    return samples


def require_every_class(samples: Sequence[Labelled], classes: Sequence[str], folder: Path) -> None:
    """Refuse a training set in which a class has no picture.

    Raises:
        UserError: it names the classes.
    """
    present = {sample.label for sample in samples}
    absent = [shown(name) for number, name in enumerate(classes) if number not in present]
    if absent:
        listed = ", ".join(absent[:8]) + (" ..." if len(absent) > 8 else "")
        seen = f"{len(absent)} of {len(classes)} folders of classes have no picture for training: {listed}"
        must = "every class has pictures; names end in .jpg, .jpeg, .png, .bmp, .webp, .gif, .tif or .ppm"
        raise UserError(explain(seen, must, shown(folder), "add pictures, or remove the folder"))


def held_out(share: float) -> Callable[[Labelled], bool]:
    """Whether a picture is of the validation set, decided by its name alone: the same on every machine, for good.

    Args:
        share: of the pictures, 0 .. 1, on average.
    """

    def decide(sample: Labelled) -> bool:
        digest = blake2b(plain(shown(sample.file)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < share * 2**64

    return decide


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a link that leads in a circle
        return False


def _unknown(folder: Path, classes: Sequence[str]) -> UserError:
    close = get_close_matches(folder.name, classes, n=1)
    seen = f"{shown(folder)} is a class that has no pictures for training"
    hint = f"did you mean {shown(close[0])}?" if close else "add its pictures for training, or remove the folder"
    return UserError(explain(seen, "the classes are the folders of the training pictures", shown(folder), hint))
