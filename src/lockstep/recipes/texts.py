"""The docstrings of Python's own standard library: real text that lies on every machine."""

import ast
import random
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

SHORTEST = 20
"""Bytes of the shortest docstring that is taken."""

END = 256
"""The token before the first byte of a text and after its last one; the others are the bytes."""

TOKENS = 257

_LEFT_OUT = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class TextSet(Dataset[Tensor]):
    """Texts as tokens: a sample is (length,) int64, `END`, the bytes, `END`, cut after `context` + 1 tokens.

    Args:
        texts: the texts.
        context: most targets of a sample: every token but the first.
    """

    def __init__(self, texts: Sequence[str], context: int) -> None:
        self.samples = [torch.tensor([END, *text.encode(), END][: context + 1]) for text in texts]
        self.sizes = [len(sample) - 1 for sample in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensor:
        return self.samples[index]


@lru_cache(maxsize=4)
def shuffled_texts(number: int) -> tuple[str, ...]:
    """The first docstrings, in an order that is the same on every machine with the same Python.

    Args:
        number: how many; fewer where the library has fewer.
    """
    texts: dict[str, None] = {}
    for text in _docstrings(Path(sysconfig.get_paths()["stdlib"])):
        texts.setdefault(text)
        if len(texts) == number:
            break
    shuffled = list(texts)
    random.Random(0).shuffle(shuffled)
    return tuple(shuffled)


def _docstrings(library: Path) -> Iterator[str]:
    """Of all modules, classes and functions under a folder, file by file by name; tests are left out."""
    for path in sorted(library.rglob("*.py")):
        if _LEFT_OUT & set(path.relative_to(library).parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # some file that is there to be wrong
            continue
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
            if text and len(text.encode()) >= SHORTEST:
                yield text
