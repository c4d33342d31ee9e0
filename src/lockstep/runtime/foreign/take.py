"""The weights of a checkpoint of any kind, for a model to start from."""

from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.core.errors import UserError, explain
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.names import printable
from lockstep.runtime.foreign.readers import open_checkpoint
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError
from lockstep.runtime.foreign.writing import load_all

if TYPE_CHECKING:
    from torch import Tensor

SAFE = "plain tensors, loadable with weights_only=True; code in a checkpoint is never run"


def weights_in(contents: Contents, key: str | None = None) -> dict[str, Entry]:
    """The tensors of the model in a checkpoint that was opened.

    Args:
        contents: it.
        key: which group, by its whole name or its last part; None: the one that is clearly the model's.

    Raises:
        UserError: where there is none, where several could be meant, or where the file is a trap.
        DamagedFileError: where its bytes are not those that were written.
    """
    where = str(contents.path)
    if contents.dangerous:
        asked = printable(", ".join(contents.dangerous[:5]))
        seen = f"{where} asks to run {asked} when it is read; nothing was run"
        raise UserError(
            explain(seen, SAFE, next_step="take the weights from where you trust them; do not torch.load it")
        )
    if contents.damage:
        raise DamagedFileError(f"{where} is damaged: {contents.damage}")
    if not any(contents.groups.values()):
        raise UserError(explain(f"{where} holds no tensors by name", "a state dict, also one inside a dict", where))
    if key is not None:
        found = [name for name in contents.groups if name == key or name.rpartition(".")[2] == key]
        if len(found) != 1:
            raise UserError(
                explain(f"{key!r} is {'not' if not found else 'more than once'} in {where}", _choice(contents))
            )
        return _filled(where, contents.groups[found[0]])
    if contents.weights is None:
        names = [printable(name) or "(top)" for name in contents.groups]
        seen = f"{where} holds {', '.join(names)}; which are the weights is not clear"
        raise UserError(explain(seen, next_step=f"lockstep ckpt convert {where} weights.safetensors --key {names[0]}"))
    return _filled(where, contents.groups[contents.weights])


def _filled(where: str, entries: dict[str, Entry]) -> dict[str, Entry]:
    if not entries:
        raise UserError(explain(f"{where} holds no tensors where its weights should be", "a state dict", where))
    return entries


def _choice(contents: Contents) -> str:
    return printable(f"one of {', '.join(name for name in contents.groups if name)}")


def weights_from(path: Path, where: str = "init_from") -> "dict[str, Tensor]":
    """The weights of a file or folder, in memory, by the names that they have there.

    Args:
        path: a checkpoint of any kind.
        where: who asks for it, for messages.

    Raises:
        UserError: where it is none, is damaged, or asks to run code.
    """
    try:
        return load_all(weights_in(open_checkpoint(path)))
    except NoCheckpointError as error:
        raise UserError(explain(printable(f"it cannot be read: {error}"), "a checkpoint", where, error.todo)) from None
    except DamagedFileError as error:
        raise UserError(explain(printable(f"it cannot be read: {error}"), "a whole checkpoint", where)) from None
    except OSError as error:
        raise UserError(explain(f"{path} cannot be read: {error.strerror or error}", where=where)) from None
