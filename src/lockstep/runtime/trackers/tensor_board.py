"""TensorBoard files in the run's folder. They are local and quick, so the training writes them itself."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from lockstep.core.errors import UserError, explain


class TensorBoard:
    """Writes `tensorboard/` of a run's folder.

    Args:
        folder: of the run.
        purge: first step that is done again and hidden from what is there already; None for a new run.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, purge: int | None) -> None:
        self.folder = folder / "tensorboard"
        self._purge = purge
        self._board: Any = None

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Add one point to each curve.

        Raises:
            OSError: where it cannot be written.
        """
        # Imported at the first record: the package takes longer to import than a first step.
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self.folder), purge_step=self._purge)
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close.

        Raises:
            OSError: where it cannot be written.
        """
        if self._board is not None:
            self._board.close()


def tensorboard_wanted(choice: Literal["auto", "on", "off"]) -> bool:
    """Whether to write TensorBoard files.

    Raises:
        UserError: where they are asked for and the package is missing.
    """
    installed = importlib.util.find_spec("tensorboard") is not None
    if choice == "on" and not installed:
        next_step = "pip install 'torch-lockstep[tensorboard]', or log.tensorboard=auto"
        raise UserError(explain("log.tensorboard=on, but tensorboard is not installed", next_step=next_step))
    return choice != "off" and installed
