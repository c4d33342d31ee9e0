"""`lockstep ckpt`: exit codes, what is printed, what is written."""

import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lockstep.ckpt import convert, diff, show, verify
from lockstep.core.errors import LockstepError, RunError, UserError
from lockstep.core.outcome import Exit
from lockstep.runtime.state.checkpoint import MODEL
from tests.runtime.foreign.samples import accelerate_state, lightning, net, sharded, training, traps
from tests.runtime.state.snapshots import flip, written

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 99\n"


def test_show_says_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lightning(tmp_path / "a.ckpt")
    assert show(tmp_path / "a.ckpt", None, 40, False, True) == Exit.DONE
    told = capsys.readouterr().out
    for part in (
        "Lightning checkpoint",
        "epoch: 3",
        "global_step: 120",
        "Adam or AdamW, lr 0.01",
        "prefix model. in 9 of 9",
    ):
        assert part in told
    assert show(tmp_path / "a.ckpt", None, 40, True, True) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == "state_dict" and len(found["groups"]["state_dict"]) == 9 and found["finite"] is True
    (tmp_path / "b.pt").write_bytes(traps(tmp_path / "exploded")["os.system"])
    assert show(tmp_path / "b.pt", None, 40, False, True) == Exit.FAILED
    assert "posix.system: RUNS CODE" in capsys.readouterr().out and not (tmp_path / "exploded").exists()


def test_verify_is_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = written(tmp_path / "run" / "checkpoints", 1, 2)
    assert verify(tmp_path / "run", False) == Exit.DONE
    assert "a resume takes step-00000002" in capsys.readouterr().out
    flip(two / MODEL, -1, 0)
    assert verify(tmp_path / "run", True) == Exit.FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["whole"] is False and [row["state"] for row in told["found"]] == ["damaged", "whole", "note"]
    assert verify(one, False) == Exit.DONE


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty.pt": ("", "empty"),
    "lfs.safetensors": (LFS, "git lfs pull"),
    "page.pt": ("<html>sign in</html>", "web page"),
    "a.py": ("import torch\n", "is text"),
    "nowhere.pt": (b"-", "is not there"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", ["show", "verify", "convert", "diff"])
def test_what_is_no_checkpoint_is_the_users_mistake(tmp_path: Path, verb: str, name: str) -> None:
    content, told = BAD[name]
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    path = tmp_path / name
    call: dict[str, Callable[[], Any]] = {
        "show": lambda: show(path, None, 0, False, True),
        "verify": lambda: verify(path, False),
        "convert": lambda: convert(path, tmp_path / "out.pt"),
        "diff": lambda: diff(path, path, 0.0, None, 0, False),
    }
    with pytest.raises(UserError, match=told):
        call[verb]()
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("target", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("kind", ["training.pt", "lightning.ckpt", "accelerate", "sharded"])
def test_convert_gives_clean_weights_that_load_anywhere(tmp_path: Path, kind: str, target: str) -> None:
    path, out = tmp_path / kind, tmp_path / "new" / target
    make: dict[str, Callable[[Path, int], Any]] = {
        "training.pt": training,
        "lightning.ckpt": lightning,
        "accelerate": accelerate_state,
        "sharded": sharded,
    }
    source = make[kind](path, 3)
    strip = ["model."] if kind == "lightning.ckpt" else []
    assert convert(path, out, strip=strip) == Exit.DONE
    loaded = load_file(out) if target.endswith("safetensors") else torch.load(out, weights_only=True)
    model = net(4)
    model.load_state_dict(loaded)
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), source.state_dict().values(), strict=True)
    )
    assert diff(path, out, 0.0, None, 0, False) == Exit.DONE


def test_convert_of_a_run_takes_the_newest_whole_one(tmp_path: Path) -> None:
    _, two = written(tmp_path / "run" / "checkpoints", 1, 2)
    flip(two / MODEL, -1, 0)
    convert(tmp_path / "run", tmp_path / "w.pt")
    assert float(torch.load(tmp_path / "w.pt", weights_only=True)["net.bias"][0]) == 1.0
    with pytest.raises(RunError, match="is damaged"):
        convert(two, tmp_path / "x.pt")


def test_convert_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "größe 模型.pt", tmp_path / "w.safetensors"
    training(path)
    convert(path, out, add="net.", only="*.weight", dtype="bf16")
    assert "6 left out" in capsys.readouterr().out
    loaded = load_file(out)
    assert list(loaded) == ["net.0.weight", "net.1.weight", "net.2.weight"]
    assert {value.dtype for value in loaded.values()} == {torch.bfloat16}
    convert(path, tmp_path / "odd.name", form="pt", force=True)
    assert torch.load(tmp_path / "odd.name", weights_only=True)
    before = out.read_bytes()
    for options, told in (
        ({}, "is there already"),
        ({"force": True, "form": "pt"}, "one of the two"),
        ({"force": True, "dtype": "int4"}, "one of fp64"),
        ({"force": True, "only": "zzz*"}, "no name fits"),
        ({"force": True, "strip": ["zzz."]}, "no name begins with"),
        ({"force": True, "key": "zzz"}, "'zzz' is not in"),
    ):
        with pytest.raises(UserError, match=told):
            convert(path, out, **options)  # type: ignore[arg-type]
        assert out.read_bytes() == before
    with pytest.raises(UserError, match="no known ending"):
        convert(path, tmp_path / "w.dat")
    with pytest.raises(UserError, match="is there already"):
        convert(path, tmp_path, form="pt")
    convert(path, out, force=True)
    assert len(load_file(out)) == 9
    torch.save({"module.a": torch.ones(1), "a": torch.ones(1)}, tmp_path / "two.pt")
    with pytest.raises(UserError, match="would both become a"):
        convert(tmp_path / "two.pt", tmp_path / "three.pt")


def test_a_trap_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(traps(tmp_path / "exploded")["eval"])
    with pytest.raises(UserError, match=r"asks to run builtins\.eval"):
        convert(tmp_path / "a.pt", tmp_path / "b.pt")
    assert not (tmp_path / "exploded").exists() and not (tmp_path / "b.pt").exists()


def test_diff_says_what_and_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = net().state_dict()
    torch.save(state, tmp_path / "a.pt")
    other = {f"module.{name}": value.clone() for name, value in state.items()}
    other["module.0.bias"][2] += 0.5
    other["module.2.bias"][0] = math.nan
    torch.save(other, tmp_path / "b.pt")
    assert diff(tmp_path / "a.pt", tmp_path / "a.pt", 0.0, None, 40, False) == Exit.DONE
    assert capsys.readouterr().out == "all 9 tensors are equal, bit for bit\n"
    assert diff(tmp_path / "a.pt", tmp_path / "b.pt", 0.0, None, 40, False) == Exit.FAILED
    told = capsys.readouterr().out
    assert "0.bias: 1 of 4 elements, at most 0.5" in told and "first [2]" in told
    assert "2.bias: 1 of 2 elements, at most inf" in told
    assert "9 have another name" in told and "9 tensors: 7 equal bit for bit, 2 of other values" in told
    assert diff(tmp_path / "a.pt", tmp_path / "b.pt", 0.0, None, 1, False) == Exit.FAILED
    assert "... and 1 more" in capsys.readouterr().out
    other["module.2.bias"][0] = state["2.bias"][0]
    torch.save(other, tmp_path / "b.pt")
    assert diff(tmp_path / "a.pt", tmp_path / "b.pt", 0.6, None, 40, True) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is True and found["tensors"][0]["verdict"] == "within"
    assert found["tensors"][0]["distance"]["elements"] == 1


def test_a_damaged_file_fails_and_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    training(tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:900])
    for call in (
        lambda: show(tmp_path / "a.pt", None, 0, False, True),
        lambda: convert(tmp_path / "a.pt", tmp_path / "b.pt"),
    ):
        with pytest.raises(LockstepError, match="cut off") as caught:
            call()
        assert caught.value.exit_code == Exit.FAILED


def test_never_a_device_nor_a_part_of_a_checkpoint(tmp_path: Path) -> None:
    (checkpoint,) = written(tmp_path / "run", 3)
    os.mkfifo(tmp_path / "pipe")
    before = (checkpoint / MODEL).read_bytes()
    for target, told in ((tmp_path / "pipe", "a device or a pipe"), (checkpoint / MODEL, "a part of the checkpoint")):
        with pytest.raises(UserError, match=told):
            convert(checkpoint, target, form="safetensors", force=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (checkpoint / MODEL).read_bytes() == before
    with pytest.raises(UserError, match="a part of the checkpoint"):
        convert(checkpoint, checkpoint / "more.pt")


def test_names_cannot_write_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"module.a\x1b[31mX": torch.ones(1), "\udc80": torch.ones(1)}, tmp_path / "a.pt")
    assert convert(tmp_path / "a.pt", tmp_path / "b.pt") == Exit.DONE
    assert show(tmp_path / "a.pt", None, 0, False, True) == Exit.DONE
    told = capsys.readouterr().out
    assert "\x1b" not in told and "\\x1b[31mX" in told and "\udc80" not in told
    with pytest.raises(UserError, match=r"the name \\udc80"):
        convert(tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert not (tmp_path / "b.safetensors").exists()


def test_a_trap_behind_a_name_of_torch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04\x8c\x0ctorch._utils\x8c\x09os.system\x93\x8c\x01x\x85R.")
    assert show(tmp_path / "a.pkl", None, 0, False, True) == verify(tmp_path / "a.pkl", False) == Exit.FAILED
    assert "torch._utils:os.system: RUNS CODE" in capsys.readouterr().out
    torch.save({"w": torch.ones(1), "make": net}, tmp_path / "b.pt")  # a function of a package that nobody here knows
    assert verify(tmp_path / "b.pt", False) == Exit.DONE
    told = capsys.readouterr().out
    assert told.startswith("unsure") and "calls tests.runtime.foreign.samples.net" in told


def test_a_folder_or_nothing_is_no_target(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    for target in (tmp_path, Path()):
        with pytest.raises(UserError, match="as a folder"):
            convert(tmp_path / "a.pt", target)


def test_an_index_that_names_nothing(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    for named, told in (({}, "no tensors"), ({"a": ".."}, "another folder")):
        index.write_text(json.dumps({"weight_map": named}))
        with pytest.raises(LockstepError, match=told):
            convert(tmp_path, tmp_path / "w.pt")
        verify(tmp_path, False)
