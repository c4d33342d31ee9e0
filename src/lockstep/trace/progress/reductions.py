"""Which backward pass reduces gradients: the one that comes to what a wrapper's forward has returned.

The reductions themselves are C++ and not seen. A backward of something else, on one rank alone, is none of them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from lockstep.trace.progress.board import Marks


class Reductions:
    """The wrapper's forwards of this rank that no backward has come to yet."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._forwards = 0
        self._blind = False
        self._place = ""
        self._open: AbstractContextManager[None] | None = None
        self.inside = False

    @property
    def expected(self) -> bool:
        """Whether a backward may reduce."""
        return self._blind or self._forwards > 0

    def expect(self, result: Any) -> None:
        """A wrapper's forward has returned this, and its gradients will be reduced."""
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        for tensor in tensors:
            tensor.register_hook(self._comes)
        if tensors:
            self._forwards += 1
        else:
            self._blind = True  # hidden in an object of the user's: the next backward is taken for it

    @contextmanager
    def backward(self, place: str) -> Iterator[None]:
        """A backward pass; place: the user's line. From its first reduction on it is a collective."""
        self._place, self.inside = place, True
        try:
            if self._blind:
                self._comes(None)
            yield
        except BaseException:
            self._open = None  # what a failing rank was in stays to be read
            raise
        finally:
            self.inside = False
            if self._open is not None:
                self._open.__exit__(None, None, None)
                self._open = None

    def _comes(self, gradient: Tensor | None) -> None:
        # On a GPU this is another thread, for which the rank's own waits.
        if self.inside and self._open is None:
            self._forwards, self._blind = 0, False
            self._open = self._marks.collective("gradients", "", self._place)
            self._open.__enter__()
