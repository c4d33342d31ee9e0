"""The folder of torch.distributed.checkpoint (`.metadata`, `*.distcp`), read without its classes and without ranks."""

from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.runtime.foreign.chunks import Chunk, put_together
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.danger import is_dangerous
from lockstep.runtime.foreign.dtypes import BYTES
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.placeholder import Foreign
from lockstep.runtime.foreign.safetensors_file import looks_like_one, read_safetensors
from lockstep.runtime.foreign.tensor_ref import TensorRef, are_sizes, sizes_text
from lockstep.runtime.foreign.torch_file import read_torch_file
from lockstep.runtime.foreign.tree import weights_group
from lockstep.runtime.foreign.window import DamagedFileError, Window

if TYPE_CHECKING:
    from torch import Tensor

KIND = "folder of torch.distributed.checkpoint"
METADATA = ".metadata"
_OWN = ("torch.distributed.", "torch.serialization.", "torch.utils._", "pathlib.")


def matches(path: Path) -> bool:
    """Whether a folder is one of DCP."""
    return (path / METADATA).is_file() or any(path.glob("*.distcp"))


def read(path: Path) -> Contents:
    """The tensors of a folder, put together from their shards when they are read.

    Raises:
        DamagedFileError: where a file is missing or cut off.
    """
    if not (path / METADATA).is_file():
        raise DamagedFileError(f"{path / METADATA} is missing: the save did not end; it is written last")
    try:
        pickled = read_torch_file(Window.of(path / METADATA))
        attributes = _attributes(pickled.root)
        where = _where(path, attributes.get("storage_data"))
        stored = attributes["state_dict_metadata"]
        paths = attributes.get("planner_data") or {}
        groups: dict[str, dict[str, Entry]] = {}
        values = []
        for name, about in stored.items():
            entry = _entry(text_of(name), _attributes(about), where)
            if entry is None:
                values.append(text_of(name))
            else:
                group, inner = _place(text_of(name), paths.get(name))
                groups.setdefault(group, {})[inner] = entry
    except DamagedFileError as error:
        raise DamagedFileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        told = type(error).__name__  # not its text: it may hold a key without end
        raise DamagedFileError(f"{path / METADATA} is not what DCP writes ({told})") from None
    origins = [origin for origin in pickled.origins if not origin.startswith(_OWN) or is_dangerous(origin)]
    ranks = len({window.source for window in where.values()})
    facts = {"files": ranks, "plain values": len(values)}
    return Contents(path, KIND, groups, weights_group(groups), facts, origins)


def _attributes(value: Any) -> dict[Any, Any]:
    if not isinstance(value, Foreign):
        raise DamagedFileError(f"{METADATA} is not what DCP writes")
    return value.attributes


def _where(folder: Path, storage: Any) -> dict[tuple[str, tuple[int, ...] | None], Window]:
    """(name, offsets of a chunk) -> its bytes."""
    found = {}
    for index, info in storage.items():
        key, place = _attributes(index), _attributes(info)
        file = folder / text_of(place["relative_path"])
        if file.parent.resolve() != folder.resolve():
            raise DamagedFileError(f"{METADATA} points out of the folder, to {text_of(place['relative_path'])}")
        if not file.is_file():
            raise DamagedFileError(f"{file.name} is missing")
        offsets = key.get("offset")
        at = None if offsets is None else tuple(offsets)
        found[text_of(key["fqn"]), at] = Window.of(file).part(place["offset"], place["length"])
    return found


def _entry(name: str, about: dict[Any, Any], where: dict[tuple[str, tuple[int, ...] | None], Window]) -> Entry | None:
    if "chunks" not in about:
        return None
    shape = tuple(about["size"])
    dtype = next((one for one in _parts(about["properties"]) if isinstance(one, str) and one in BYTES), None)
    if dtype is None:
        raise DamagedFileError(f"{name} has no known type")
    chunks = []
    for part in about["chunks"]:
        block = _attributes(part)
        offsets, sizes = tuple(block["offsets"]), tuple(block["sizes"])
        window = where.get((name, offsets)) or where.get((name, None))
        if window is None:
            raise DamagedFileError(f"the chunk of {name} at {sizes_text(offsets)} is missing")
        if not are_sizes(*sizes) or prod(sizes) * BYTES[dtype] > window.nbytes:
            raise DamagedFileError(f"the chunk of {name} at {sizes_text(offsets)} has {window.nbytes} bytes, too few")
        chunks.append(Chunk(offsets, sizes, partial(_load, window)))
    return put_together(name, shape, dtype, chunks)


def _parts(properties: Any) -> list[Any]:
    state = properties.state if isinstance(properties, Foreign) else None
    return list(state.values()) if isinstance(state, dict) else list(state or ())


def _load(window: Window) -> "Tensor":
    return _tensor_in(window).load()


def _tensor_in(window: Window) -> TensorRef:
    if looks_like_one(window):
        found = list(read_safetensors(window).tensors.values())
        if len(found) != 1:
            raise DamagedFileError(f"a chunk holds {len(found)} tensors")
        return found[0]
    root = read_torch_file(window).root
    if not isinstance(root, TensorRef):
        raise DamagedFileError("a chunk holds no tensor")
    return root


def _place(name: str, path: Any) -> tuple[str, str]:
    """The group of a tensor, and its name in there: {"model": {"a.weight": ...}} is stored as `model.a.weight`."""
    if isinstance(path, tuple | list) and len(path) > 1:
        return text_of(path[0]), ".".join(text_of(part) for part in path[1:])
    return "", name
