"""Names in a pickle are told by what trainings store: everything else of Python, torch and numpy would run."""

import pytest

from lockstep.runtime.foreign.honest import Asks, asks, name_of
from lockstep.runtime.foreign.torch_file import read_torch_file
from lockstep.runtime.foreign.window import Window

RUN = [
    *(("torch._utils", "os.system"), ("torch.serialization", "os.system"), ("a.b", "Outer.os.system")),
    *(("_pickle", "loads"), ("_io", "FileIO"), ("_ctypes", "CDLL"), ("_operator", "attrgetter"), ("io", "FileIO")),
    *(("numpy.f2py.crackfortran", "myeval"), ("numpy", "load"), ("numpy", "memmap")),
    *(("numpy.testing._private.utils", "runstring"), ("numpy.core", "_ufunc_reconstruct")),
    *(("torch.serialization", "load"), ("torch._inductor.codecache", "compile_file")),
    *(("torch.distributed.rpc.internal", "_run_function"), ("torch.utils.collect_env", "run")),
    *(("torch._C", "PyTorchFileWriter"), ("torch.nn.functional", "importlib")),
    *(("joblib", "load"), ("dill", "loads"), ("pandas", "read_pickle"), ("yaml", "unsafe_load")),
    *(("logging", "FileHandler"), ("doctest", "debug_script"), ("site", "main"), ("compileall", "compile_dir")),
    *(("py_compile", "compile"), ("weakref", "finalize"), ("atexit", "register"), ("threading", "Thread")),
    *(("functools", "reduce"), ("enum", "sys"), ("copy_reg", "add_extension"), ("builtins", "map.x")),
]
DATA = [
    *(("zoneinfo", "ZoneInfo._unpickle"), ("_io", "BytesIO"), ("datetime", "datetime"), ("copy_reg", "_reconstructor")),
    *(("torch.nn.functional", "relu"), ("torch._C._nn", "gelu"), ("torch", "quint8"), ("torch", "strided")),
    *(("torch.amp.grad_scaler", "_refresh_per_optimizer_state"), ("torch.serialization", "_get_layout")),
    *(("torch.distributed.checkpoint.metadata", "_StorageInfo"), ("torch.optim.lr_scheduler", "StepLR")),
    *(("numpy", "float64"), ("numpy._core.numeric", "_frombuffer"), ("numpy.random._pickle", "__randomstate_ctor")),
    *(("builtins", "ValueError"), ("pathlib._local", "PosixPath"), ("__main__", "Outer._Inner")),
]


@pytest.mark.parametrize(("module", "name"), RUN)
def test_what_would_run(module: str, name: str) -> None:
    assert asks(name_of(module, name)) == Asks.RUN


@pytest.mark.parametrize(("module", "name"), DATA)
def test_what_is_data(module: str, name: str) -> None:
    assert asks(name_of(module, name)) == Asks.DATA


def test_a_function_that_nobody_knows() -> None:
    assert asks("__main__.make_model") == asks("mine.tools.collate") == asks("__main__.load") == Asks.CALL


def test_a_name_that_walks_to_another_module() -> None:
    data = b"\x80\x04\x8c\x0ctorch._utils\x8c\x09os.system\x93\x8c\x01x\x85R."
    assert read_torch_file(Window.of(data)).origins == ["torch._utils:os.system"]
