"""Pickles read as data: tensors become references, objects of other programs placeholders, and nothing is run.

The pickle machine can only call what `find_class` hands out. Ours hands out the few makers below and classes of
placeholders; it imports nothing and looks no attribute up, whatever the pickle names.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

from lockstep.runtime.foreign.danger import end_of_pickle
from lockstep.runtime.foreign.dtypes import BYTES, STORAGES
from lockstep.runtime.foreign.honest import name_of
from lockstep.runtime.foreign.names import text_of
from lockstep.runtime.foreign.placeholder import Foreign, foreign_class
from lockstep.runtime.foreign.tensor_ref import Storage, TensorRef, are_sizes
from lockstep.runtime.foreign.window import DamagedFileError, Window

LARGEST_PICKLE = 2**31  # bytes
_PYTHON = {"builtins", "__builtin__"}
_PLAIN: dict[str, Callable[..., Any]] = {"set": set, "frozenset": frozenset, "complex": complex, "slice": slice}
_PLAIN |= {"dict": dict, "list": list, "tuple": tuple}


class Table(dict[Any, Any]):
    """An OrderedDict of the file; the attributes that torch gives to a state dict are left out."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Maker:
    """One of the functions that may be called; a pickle cannot change it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args)

    def __setstate__(self, state: Any) -> None:
        raise DamagedFileError("the file sets a state on a function")


def unpickle(
    window: Window, origins: dict[str, None], storages: dict[tuple[str, str], Storage], nested: Callable[[bytes], Any]
) -> tuple[Any, int]:
    """The value of the pickle at the start of a window, and the bytes that it takes.

    Args:
        window: where it lies.
        origins: collects the names that were asked for and are none of torch's own, in order.
        storages: collects the storages that its tensors need, by key and type.
        nested: reads a torch file that is stored as bytes inside the pickle.

    Raises:
        DamagedFileError: where it is not whole or contradicts itself.
    """
    with window.open() as file:
        end = end_of_pickle(file)
    if end > LARGEST_PICKLE:
        raise DamagedFileError(f"its pickle has {end} bytes; tensors lie beside it, so it is a trap")
    data = io.BytesIO(window.part(0, end).read())
    try:
        value = _Reader(data, origins, storages, nested).load()
    except DamagedFileError:
        raise
    except Exception as error:  # what a damaged pickle raises is anybody's guess; nothing of ours is called
        raise DamagedFileError(f"its pickle cannot be read: {str(error) or type(error).__name__}") from None
    return value, end


class _Reader(pickle.Unpickler):
    def __init__(
        self,
        file: io.BytesIO,
        origins: dict[str, None],
        storages: dict[tuple[str, str], Storage],
        nested: Callable[[bytes], Any],
    ) -> None:
        super().__init__(file, encoding="utf-8", errors="surrogateescape")
        self._origins, self._storages = origins, storages
        self._makers = {name: _Maker(make) for name, make in {**_MAKERS, "_load_from_bytes": nested}.items()}
        self._classes: dict[str, type[Foreign]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """A maker of ours or the class of a placeholder; nothing is imported."""
        origin = name_of(module, name)
        if origin in ("collections.OrderedDict", "collections.defaultdict"):
            return Table if name == "OrderedDict" else foreign_class(origin)
        if module in _PYTHON and name in _PLAIN:
            return _PLAIN[name]
        if origin in ("torch.Size", "torch.device", "_codecs.encode", "builtins.bytearray", "__builtin__.bytearray"):
            return self._makers[name]
        if origin in _TENSOR_MAKERS:
            return self._makers[name]
        if module == "torch" and name in BYTES:
            return name
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if name != "_get_dtype":
            self._origins.setdefault(origin)
        return self._classes.setdefault(origin, foreign_class(origin))

    def persistent_load(self, pid: Any) -> Storage:
        """A storage by the name that the pickle has for it."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or pid[1] not in BYTES:
            raise DamagedFileError(f"a reference that is no storage: {text_of(pid)[:80]}")
        if len(pid) > 5 and pid[5] is not None:
            raise DamagedFileError("it has views of storages, which torch wrote before 0.4; save it again with torch")
        key, numel = text_of(pid[2]), pid[4]
        if not are_sizes(numel):
            raise DamagedFileError(f"storage {key} of {text_of(numel)} elements")
        return self._storages.setdefault((key, pid[1]), Storage(key, pid[1], numel))


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> TensorRef:
    return _tensor_of(storage, offset, size, stride, storage.dtype)


def _tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any) -> TensorRef:
    return _tensor_of(storage, offset, size, stride, dtype)


def _tensor_of(storage: Any, offset: Any, size: Any, stride: Any, dtype: Any) -> TensorRef:
    if not isinstance(storage, Storage):
        raise DamagedFileError("a tensor without a storage")
    return TensorRef(storage, offset, tuple(size), tuple(stride), dtype).checked()


def _same(value: Any, *_: Any) -> Any:
    return value


def _subclass(make: Any, _type: Any, args: Any, _state: Any) -> Any:
    """A tensor of a subclass, as the plain tensor that it is."""
    return make(*args) if isinstance(make, _Maker) else args


def _wrapped_storage(wrap_storage: Any = None, dtype: Any = None, *_: Any) -> Any:
    if not isinstance(wrap_storage, Storage) or dtype not in BYTES:
        raise DamagedFileError("a storage of no known type")
    typed = Storage(wrap_storage.key, dtype, wrap_storage.numel // BYTES[dtype])
    typed.window = wrap_storage.window
    return typed


def _encode(text: str, encoding: str = "") -> bytes:
    if encoding not in ("latin1", "latin-1", "utf-8"):
        raise DamagedFileError(f"text in the encoding {encoding!r}")
    return text.encode(encoding)


def _bytes(data: Any) -> bytearray:
    if isinstance(data, int):
        raise DamagedFileError(f"memory for {data} bytes")
    return bytearray(data.encode("latin1") if isinstance(data, str) else data)


_MAKERS: dict[str, Callable[..., Any]] = {
    "_rebuild_tensor": _tensor,
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_tensor_v3": _tensor_v3,
    "_rebuild_parameter": _same,
    "_rebuild_parameter_with_state": _same,
    "_rebuild_from_type_v2": _subclass,
    "Parameter": _same,
    "Buffer": _same,
    "TypedStorage": _wrapped_storage,
    "Size": lambda sizes=(): tuple(sizes),
    "device": lambda *parts: ":".join(text_of(part) for part in parts),
    "encode": _encode,
    "bytearray": lambda data=b"", *_: _bytes(data),
}
_TENSOR_MAKERS = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.storage.TypedStorage",
    "torch.storage._load_from_bytes",
}
