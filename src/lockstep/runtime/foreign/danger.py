"""What a pickle asks for by name, and which of it only a trap would ask for."""

import pickletools
from typing import BinaryIO

from lockstep.runtime.foreign.window import DamagedFileError

# Modules whose functions act on the machine; a training has no reason to store a call of them.
_ACTING = {
    *("asyncio", "bdb", "cProfile", "code", "codeop", "commands", "concurrent", "ctypes", "distutils", "ensurepip"),
    *("fileinput", "ftplib", "gc", "glob", "http", "imaplib", "importlib", "inspect", "io", "linecache", "marshal"),
    *("multiprocessing", "nntplib", "nt", "ntpath", "operator", "os", "pdb", "pickle", "pip", "pkgutil", "platform"),
    *("poplib", "posix", "posixpath", "profile", "pty", "pydoc", "requests", "runpy", "shelve", "shutil", "signal"),
    *("smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "timeit", "trace"),
    *("types", "urllib", "urllib3", "uuid", "venv", "webbrowser", "xmlrpc", "zipfile", "zipimport", "_posixsubprocess"),
}
# Of these, objects of classes (`uuid.UUID`, `types.SimpleNamespace`) are data.
_WITH_DATA = {"asyncio", "concurrent", "http", "inspect", "io", "multiprocessing", "signal", "types", "urllib", "uuid"}
_CODE = {"types.CodeType", "types.FunctionType", "types.LambdaType", "types.MethodType"}
_BUILTINS = {"__import__", "apply", "breakpoint", "compile", "delattr", "eval", "exec", "execfile", "file", "getattr"}
_BUILTINS |= {"globals", "input", "locals", "open", "setattr", "vars", "exit", "quit", "help", "memoryview"}
_TORCH = ("torch.hub.", "torch.utils.cpp_extension.", "torch.jit.", "torch.ops.", "torch.load", "torch.save")


def is_dangerous(origin: str) -> bool:
    """Whether a name (`os.system`) belongs to a pickle that does something when it is read.

    A method (`pathlib.Path.touch`) does too: what is stored is made by classes and their makers, not by methods.
    """
    module, _, name = origin.rpartition(".")
    top = module.split(".")[0]
    if top in ("builtins", "__builtin__"):
        return name in _BUILTINS
    if top in _WITH_DATA and name[:1].isupper():
        return origin in _CODE
    if top in _ACTING or origin.startswith(_TORCH):
        return True
    owner = module.rpartition(".")[2]
    return owner[:1].isupper() and not name[:1].isupper()


def end_of_pickle(file: BinaryIO) -> int:
    """Read over one pickle, doing nothing of what it says; the position behind it.

    Raises:
        DamagedFileError: where it is no whole pickle, or would fill the memory by itself.
    """
    start, count, largest = file.tell(), 0, 0
    try:
        for op, argument, _ in pickletools.genops(file):
            count += 1
            if op.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int):
                largest = max(largest, argument)
    except (ValueError, EOFError, MemoryError, OverflowError, IndexError, KeyError, UnicodeError) as error:
        raise DamagedFileError(f"its pickle breaks off: {str(error) or type(error).__name__}") from None
    end = file.tell()
    if largest > count + 1024:
        raise DamagedFileError(f"its pickle asks for {largest} places in memory for {count} values: a trap")
    assert end > start
    return end
