"""What only a trap asks for, and what a training stores."""

import io
import pickle

import pytest

from lockstep.runtime.foreign.danger import end_of_pickle, is_dangerous
from lockstep.runtime.foreign.window import DamagedFileError

TRAPS = [
    *("os.system", "posix.system", "nt.system", "subprocess.Popen", "subprocess.check_output"),
    *("builtins.eval", "builtins.exec", "builtins.getattr", "__builtin__.eval", "builtins.__import__"),
    *("builtins.open", "importlib.import_module", "runpy.run_path", "shutil.rmtree", "socket.socket"),
    *("pathlib.Path.touch", "pathlib.PosixPath.unlink", "ctypes.CDLL", "marshal.loads", "pickle.loads"),
    *("types.CodeType", "types.FunctionType", "operator.attrgetter", "torch.load", "torch.hub.load"),
    *("torch.utils.cpp_extension.load", "sys.exit", "urllib.request.urlopen", "pty.spawn", "webbrowser.open"),
    *("code.InteractiveInterpreter",),
]
HARMLESS = [
    *("argparse.Namespace", "pathlib.PosixPath", "numpy.core.multiarray.scalar", "numpy.dtype"),
    *("numpy._core.multiarray._reconstruct", "collections.defaultdict", "omegaconf.dictconfig.DictConfig"),
    *("lightning.fabric.utilities.data.AttributeDict", "__main__.Config", "torch.nn.modules.linear.Linear"),
    *("torch.optim.adamw.AdamW", "functools.partial", "datetime.datetime", "types.SimpleNamespace"),
    *("uuid.UUID", "enum.Enum", "__main__.make_model", "mypackage.models.Outer.Inner"),
    *("copyreg._reconstructor", "torch._utils._rebuild_qtensor"),
]


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_seen(name: str) -> None:
    assert is_dangerous(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_data_are_no_trap(name: str) -> None:
    assert not is_dangerous(name)


def test_the_end_of_a_pickle_is_found() -> None:
    one = pickle.dumps({"a": [1, "b"]})
    file = io.BytesIO(one + b"rest")
    assert end_of_pickle(file) == len(one)
    with pytest.raises(DamagedFileError, match="breaks off"):
        end_of_pickle(io.BytesIO(one[:-3]))
