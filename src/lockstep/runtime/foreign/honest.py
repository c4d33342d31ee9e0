"""What the names in a pickle do when it is read: told by what trainings are known to store, not by what is bad.

Of Python's own modules, torch and numpy only the names below are data; any other would run. Of other packages a class
is data, and a function is unknown.
"""

import sys
from enum import Enum

_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # since Python 2
_BUILTINS = {
    *("object", "type", "int", "float", "bool", "str", "unicode", "long", "bytes", "bytearray", "complex", "list"),
    *("tuple", "dict", "set", "frozenset", "slice", "range", "xrange", "Ellipsis", "NotImplemented", "NoneType"),
    *("len", "sum", "min", "max", "abs", "round", "sorted", "zip", "map", "filter", "enumerate", "reversed", "print"),
}
# Names of Python's own modules that make data; a module alone stands for all that is in it.
_PYTHON = {
    *("argparse.Namespace", "array.array", "array._array_reconstructor", "codecs.encode", "cmath", "math"),
    *("collections.OrderedDict", "collections.defaultdict", "collections.deque", "collections.Counter"),
    *("collections.ChainMap", "collections.UserDict", "collections.UserList", "collections.abc"),
    *("copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__", "copyreg.__reduce_ex__"),
    *("dataclasses.Field", "dataclasses._MISSING_TYPE", "datetime", "decimal", "enum", "fractions", "io.BytesIO"),
    *("functools.partial", "http.HTTPStatus", "inspect.Signature", "inspect.Parameter", "inspect._ParameterKind"),
    *("io.StringIO", "ipaddress", "itertools", "logging.getLogger", "numbers", "random.Random", "re._compile"),
    *("re.RegexFlag", "signal.Signals", "string.Template", "time.struct_time", "types.SimpleNamespace"),
    *("types.MappingProxyType", "types.GenericAlias", "types.UnionType", "types.NoneType", "typing"),
    *("urllib.parse.ParseResult", "urllib.parse.SplitResult", "uuid.UUID", "uuid.SafeUUID"),
    *("zoneinfo.ZoneInfo", "zoneinfo:ZoneInfo._unpickle"),
}
_PATHS = {"Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"}
# Functions of torch and numpy that trainings store: makers of tensors and arrays, activations.
_MAKERS = (
    *("torch._utils._rebuild_", "torch._tensor._rebuild_", "torch.serialization._get_layout", "torch._C._nn."),
    *("torch.nn.functional.", "torch.amp.grad_scaler._refresh_per_", "torch.cuda.amp.grad_scaler._refresh_per_"),
    *("numpy.random._pickle.__", "numpy.ma.core._mareconstruct"),
)
_ARRAYS = {"scalar", "_reconstruct", "_frombuffer"}
_NUMBERS = {
    *("float", "int", "uint", "complex", "bool", "qint", "quint", "bfloat", "str_", "bytes_", "bool_", "object_"),
    *("void", "datetime", "timedelta", "longdouble", "ndarray", "dtype", "recarray", "double", "half", "long", "short"),
    *("intc", "uintc", "longlong", "ulonglong", "intp", "uintp", "device", "strided", "sparse_coo", "sparse_csr"),
    *("contiguous_format", "preserve_format", "channels_last", "per_tensor_affine", "per_channel_affine"),
    *("relu", "tanh", "sigmoid", "softmax", "cat", "add", "mul", "Size", "Tensor", "Generator"),
}
# Classes of torch that act when they are made, or parts that do nothing else.
_ACTING = (
    *("torch.hub.", "torch.utils.cpp_extension.", "torch.jit.", "torch.ops.", "torch.package.", "torch.classes."),
    *(
        "torch.utils.tensorboard.",
        "torch._inductor.",
        "torch._dynamo.",
        "torch.distributed.rpc.",
        "torch.utils.bundled",
    ),
    *("torch.multiprocessing.", "torch.utils.collect_env.", "torch.testing.", "torch.fx."),
    *("numpy.f2py.", "numpy.testing.", "numpy.distutils.", "numpy.ctypeslib."),
)
_TOOLS = {
    *("pip", "setuptools", "pkg_resources", "requests", "urllib3", "urllib2", "httplib", "httpx", "aiohttp", "IPython"),
    *("commands", "cPickle", "dill", "cloudpickle", "joblib", "jsonpickle", "psutil", "pexpect", "paramiko", "fabric"),
    *("invoke", "sh", "plumbum", "numexpr", "distutils", "imp", "nt", "ntpath", "pipes", "telnetlib", "cffi", "numba"),
    *("nntplib", "asyncore", "asynchat", "smtpd", "lib2to3", "uvloop", "torch_extensions", "test", "popen2"),
}
_LOADERS = {
    *("load", "loads", "load_all", "unsafe_load", "full_load", "read_pickle", "eval", "exec", "execute", "system"),
    *("popen", "run", "call", "check_output", "check_call", "spawn", "open", "urlopen", "import_module", "getattr"),
}


class Asks(Enum):
    """What a name in a pickle is for: data, a function that nobody here knows, or something that runs."""

    DATA = "data"
    CALL = "call"
    RUN = "run"


def name_of(module: str, name: str) -> str:
    """The name that a pickle asks for, as one text; `module:a.b` where it walks through what is no class."""
    dotted = "." in name and not all(_is_class(part) for part in name.split("."))
    return f"{module}{':' if dotted else '.'}{name}"


def asks(origin: str) -> Asks:
    """What a name is for.

    Args:
        origin: as `name_of` gives it.
    """
    module, _, name = origin.rpartition(".")
    top, _, rest = origin.partition(".")
    top = _RENAMED.get(top, top).partition(":")[0]
    if ":" in origin:
        return _sure(origin in _PYTHON)
    if top in _TOOLS:
        return Asks.RUN
    if top == "builtins":
        return _sure(rest in _BUILTINS or rest.endswith(("Error", "Exception", "Warning")))
    if top in sys.stdlib_module_names:
        return _sure(_of_python(top.lstrip("_") if top != "__future__" else top, rest, name))
    if _is_class(module.rpartition(".")[2]) and not _is_class(name):
        return Asks.RUN  # a method: what is stored is made by classes and their makers
    if top in ("torch", "numpy"):
        return _sure(_of_tensors(origin, module, name))
    if _is_class(name):
        return Asks.DATA
    return Asks.RUN if name in _LOADERS and top != "__main__" else Asks.CALL


def _sure(data: bool) -> Asks:
    return Asks.DATA if data else Asks.RUN


def _is_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _of_python(top: str, rest: str, name: str) -> bool:
    if top == "pathlib":
        return name in _PATHS and rest.count(".") < 2
    parts = rest.split(".")
    if name in sys.stdlib_module_names and name != top:
        return False
    nested = any(_is_class(part) for part in parts[:-1]) and not _is_class(name)
    return not nested and any(".".join([top, *parts[:depth]]) in _PYTHON for depth in range(len(parts) + 1))


def _of_tensors(origin: str, module: str, name: str) -> bool:
    if origin.startswith(_ACTING) or (module == "torch._C" and name != "Generator"):
        return False
    if _is_class(name):
        return True
    known = name.rstrip("0123456789") in _NUMBERS and module.count(".") < 2
    arrays = name in _ARRAYS and module.startswith("numpy.") and module.endswith((".multiarray", ".numeric"))
    return known or arrays or (origin.startswith(_MAKERS) and name not in sys.stdlib_module_names)
