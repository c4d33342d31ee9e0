"""One file -> what it holds: `.safetensors`, or what `torch.save` or `pickle.dump` wrote; its first bytes say which."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from lockstep.runtime.foreign.bogus import what_it_is
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.facts import facts_of
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.safetensors_file import looks_like_one, read_safetensors
from lockstep.runtime.foreign.torch_file import (
    LEGACY,
    ZIP,
    Pickled,
    damaged_records,
    looks_like_a_pickle,
    read_torch_file,
)
from lockstep.runtime.foreign.tree import groups_of, is_module, is_optimizer, is_training_state, weights_group
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError, Window

KIND = "file"
LIGHTNING = "pytorch-lightning_version"


def matches(path: Path) -> bool:
    """Whether it is a file."""
    return path.is_file()


def read(path: Path, elsewhere: Collection[str] = ()) -> Contents:
    """What a file holds.

    Args:
        path: it.
        elsewhere: what its optimizer keeps for a parameter in other files.

    Raises:
        DamagedFileError: where it is not whole.
        NoCheckpointError: where it is something else; the message says what.
    """
    window = Window.of(path)
    try:
        if form_of(window, path.suffix) == "safetensors":
            return _safetensors(path, window)
        contents = _pickled(path, read_torch_file(window), elsewhere)
        contents.damage = next((f"{name} is not as it was written (CRC-32)" for name in damaged_records(window)), "")
        return contents
    except DamagedFileError as error:
        raise DamagedFileError(f"{path}: {error}") from None
    except NoCheckpointError as error:
        raise NoCheckpointError(f"{path} is {error}", error.todo) from None


def form_of(window: Window, suffix: str = "") -> str:
    """`safetensors` or `torch`, by the first bytes.

    Raises:
        DamagedFileError: where they are neither's, and nothing else's that is known.
        NoCheckpointError: where they are something else's.
    """
    head = bytes(window.read(16))
    if head.startswith(ZIP) or head[: len(LEGACY)] == LEGACY:
        return "torch"
    if looks_like_one(window):
        return "safetensors"
    if looks_like_a_pickle(window):
        return "torch"
    what, todo = what_it_is(window)
    if what:
        raise NoCheckpointError(what, todo)
    if suffix == ".safetensors":
        return "safetensors"
    raise DamagedFileError(f"it begins with {head[:8].hex(' ')}, as no checkpoint does")


def _safetensors(path: Path, window: Window) -> Contents:
    found = read_safetensors(window)
    facts = {key: text for key, text in found.metadata.items() if key not in ("ties", "format") and len(text) <= 60}
    tensors = {name: Entry.of(ref) for name, ref in found.tensors.items()}
    return Contents(path, "safetensors file", {"": tensors}, "" if tensors else None, facts)


def _pickled(path: Path, pickled: Pickled, elsewhere: Collection[str]) -> Contents:
    root = pickled.root
    facts = facts_of(root, elsewhere)
    groups = groups_of(root)
    contents = Contents(path, _kind(pickled, groups), groups, weights_group(groups), facts, pickled.origins)
    hyper = root.get("hyper_parameters") if isinstance(root, dict) else None
    if isinstance(hyper, dict | Foreign):
        names = (
            list(hyper) if isinstance(hyper, dict) else [key for key, _ in [*hyper.pairs, *hyper.attributes.items()]]
        )
        contents.facts["hyper_parameters"] = ", ".join(text_of(name) for name in names[:12])
    if not groups:
        contents.notes.append("no tensor is in it")
    return contents


def _kind(pickled: Pickled, groups: dict[str, Any]) -> str:
    root, old = pickled.root, "" if pickled.form == "torch file" else f" ({pickled.form})"
    if is_module(root):
        return f"a whole model, pickled ({root.origin}){old}"
    if isinstance(root, dict) and LIGHTNING in root:
        return f"Lightning checkpoint{old}"
    if is_optimizer(root):
        return f"state of an optimizer{old}"
    if list(groups) == [""] and isinstance(root, dict) and len(root) == len(groups[""]):
        return f"state dict{old}"
    if groups and all(is_training_state(name) for name in groups):
        return f"state of a training, without weights{old}"
    return f"{'checkpoint of a training' if groups else 'plain values'}{old}"
