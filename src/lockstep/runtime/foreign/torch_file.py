"""What `torch.save` and `pickle.dump` write: a zip of a pickle and its storages, the older format, a bare pickle."""

import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lockstep.runtime.foreign.danger import end_of_pickle
from lockstep.runtime.foreign.dtypes import BYTES
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.tensor_ref import Storage
from lockstep.runtime.foreign.unpickler import unpickle
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError, Window

ZIP = b"PK\x03\x04"
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_OPCODES = {op.code.encode("latin1") for op in pickletools.opcodes}
_LOCAL_HEADER, _DEEPEST = 30, 2


@dataclass
class Pickled:
    """The value of a file, its tensors still in it.

    Attributes:
        root: dicts, lists, numbers, text, TensorRef, and Foreign for everything else.
        origins: names that the file asks for and that were not looked up, such as `argparse.Namespace`.
        form: how it was written.
    """

    root: Any
    origins: list[str] = field(default_factory=list)
    form: str = ""


def read_torch_file(window: Window, depth: int = 0) -> Pickled:
    """Read a file of torch or pickle without running it.

    Raises:
        DamagedFileError: where it is not whole.
        NoCheckpointError: where it is an archive of something else.
    """
    head = bytes(window.read(len(LEGACY)))
    origins: dict[str, None] = {}

    def nested(data: Any) -> Any:
        if depth >= _DEEPEST or not isinstance(data, bytes | bytearray):
            raise DamagedFileError("files inside files inside files")
        inner = read_torch_file(Window.of(bytes(data)), depth + 1)
        origins.update(dict.fromkeys(inner.origins))
        return inner.root

    read = _zip if head.startswith(ZIP) else _legacy if head == LEGACY else _plain
    return read(window, origins, nested)


def records(window: Window) -> dict[str, tuple[zipfile.ZipInfo, Window]]:
    """The files in a zip, and where their bytes are; they lie there uncompressed.

    Raises:
        DamagedFileError: where the zip is not whole.
    """
    found = {}
    try:
        with window.open() as file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise DamagedFileError(f"the end of its zip is missing ({error}): it was cut off") from None
    for info in infos:
        header = window.part(info.header_offset, _LOCAL_HEADER).read()
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
        if header[:4] != ZIP:
            raise DamagedFileError(f"{info.filename} does not lie where the zip directory says")
        if info.compress_type != zipfile.ZIP_STORED:
            raise NoCheckpointError(
                "a zip whose files are compressed; torch never compresses: unpack it, then show that"
            )
        start = info.header_offset + _LOCAL_HEADER + name_bytes + extra_bytes
        found[info.filename] = info, window.part(start, info.file_size)
    return found


def damaged_records(window: Window) -> Iterator[str]:
    """Names of the files in a zip whose bytes are not those that were written (CRC-32)."""
    found = records(window) if bytes(window.read(len(ZIP))) == ZIP else {}
    if any(info.CRC for info, _ in found.values()):  # all 0: torch was told to leave the sums out
        for name, (info, part) in found.items():
            if _crc(part) != info.CRC:
                yield name


def _crc(part: Window, piece: int = 2**24) -> int:
    total = 0
    for at in range(0, part.nbytes, piece):
        total = zlib.crc32(part.part(at, min(piece, part.nbytes - at)).read(), total)
    return total


def _zip(window: Window, origins: dict[str, None], nested: Any) -> Pickled:
    found = records(window)
    pickles = [name for name in found if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        what = "arrays of numpy (.npz)" if any(name.endswith(".npy") for name in found) else "no data.pkl in it"
        raise NoCheckpointError(f"a zip that torch did not write: {what}")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in found and bytes(found[f"{folder}byteorder"][1].read(9)).strip() == b"big":
        raise NoCheckpointError("written on a big-endian machine", "load it with torch and save it again")
    storages: dict[tuple[str, str], Storage] = {}
    root, _ = unpickle(found[pickles[0]][1], origins, storages, nested)
    for (key, dtype), storage in storages.items():
        name = f"{folder}data/{key}"
        if name not in found:
            raise DamagedFileError(f"storage {key} is missing")
        storage.window = found[name][1].part(0, storage.numel * BYTES[dtype])
    script = any(name.startswith(f"{folder}code/") for name in found)
    return Pickled(root, list(origins), "TorchScript program" if script else "torch file")


def _legacy(window: Window, origins: dict[str, None], nested: Any) -> Pickled:
    storages: dict[tuple[str, str], Storage] = {}
    at, values = 0, []
    for _ in range(5):  # magic number, protocol, system, the value, the keys of its storages
        value, length = unpickle(window.part(at, window.nbytes - at), origins, storages, nested)
        values.append(value)
        at += length
    _, _, system, root, keys = values
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise NoCheckpointError("written on a big-endian machine", "load it with torch and save it again")
    by_key = {key: storage for (key, _), storage in storages.items()}
    for key in keys if isinstance(keys, list) else ():
        storage = by_key.get(text_of(key))
        if storage is None:
            raise DamagedFileError(f"storage {text_of(key)} belongs to no tensor")
        (numel,) = struct.unpack("<q", window.part(at, 8).read())
        storage.window = window.part(at + 8, numel * BYTES[storage.dtype])
        if numel < storage.numel:
            raise DamagedFileError(f"storage {text_of(key)} has {numel} of {storage.numel} elements")
        at += 8 + storage.window.nbytes
    missing = [key for key, storage in by_key.items() if storage.window is None]
    if missing:
        raise DamagedFileError(f"storage {missing[0]} is missing")
    return Pickled(root, list(origins), "torch file in the format before 1.6")


def _plain(window: Window, origins: dict[str, None], nested: Any) -> Pickled:
    storages: dict[tuple[str, str], Storage] = {}
    root, _ = unpickle(window, origins, storages, nested)
    if storages:
        raise DamagedFileError("its tensors lie outside of it, and are not there")
    return Pickled(root, list(origins), "pickle")


def looks_like_a_pickle(window: Window) -> bool:
    """Whether it begins as a pickle does; the oldest kinds are text, and are read to their end to tell."""
    head = window.read(2)
    if head[:1] == b"\x80":
        return len(head) > 1 and head[1] <= pickle.HIGHEST_PROTOCOL
    if not head[:1] or bytes(head[:1]) not in _OPCODES:
        return False
    try:
        with window.open() as file:
            return end_of_pickle(file) == window.nbytes
    except DamagedFileError:
        return False
