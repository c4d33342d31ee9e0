"""A folder of safetensors files, one by each rank, with its block of every tensor: DCP's other format, and ours."""

import json
from pathlib import Path

from lockstep.runtime.foreign.chunks import Chunk, put_together
from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.safetensors_file import Safetensors, read_safetensors
from lockstep.runtime.foreign.tree import weights_group
from lockstep.runtime.foreign.window import DamagedFileError, Window

KIND = "folder of shards, one of each rank"
_INFO = "DCP_SHARDING_INFO"


def matches(path: Path) -> bool:
    """Whether the files that ranks wrote lie in a folder."""
    return any(path.glob("shard-*.safetensors"))


def read(path: Path) -> Contents:
    """The tensors of a folder, whole.

    Raises:
        DamagedFileError: where a shard is missing or cut off.
    """
    chunks: dict[str, list[Chunk]] = {}
    types: dict[str, str] = {}
    files = sorted(path.glob("shard-*.safetensors"))
    for file in files:
        try:
            found = read_safetensors(Window.of(file))
            offsets = _offsets(found)
        except DamagedFileError as error:
            raise DamagedFileError(f"{file}: {error}") from None
        for name, ref in found.tensors.items():
            at = offsets.get(name, (0,) * len(ref.shape))
            chunks.setdefault(name, []).append(Chunk(at, ref.shape, ref.load))
            types[name] = ref.dtype
    try:
        tensors = {name: _whole(name, types[name], blocks) for name, blocks in chunks.items()}
    except DamagedFileError as error:
        raise DamagedFileError(f"{path}: {error}") from None
    groups = {"": tensors}
    return Contents(path, KIND, groups, weights_group(groups), {"files": len(files)})


def _offsets(found: Safetensors) -> dict[str, tuple[int, ...]]:
    try:
        told = json.loads(found.metadata.get(_INFO, "{}"))
        return {str(name): tuple(int(at) for at in about["saved_offsets"]) for name, about in told.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedFileError(f"its header does not say where its blocks belong: {error!r}") from None


def _whole(name: str, dtype: str, blocks: list[Chunk]) -> Entry:
    ends = [[at + size for at, size in zip(block.offsets, block.sizes, strict=False)] for block in blocks]
    shape = tuple(max(axis) for axis in zip(*ends, strict=False))
    unlike = [block for block in blocks if len(block.offsets) != len(shape)]
    if unlike:
        raise DamagedFileError(f"the shards of {name} have other numbers of dimensions")
    return put_together(name, shape, dtype, blocks)
