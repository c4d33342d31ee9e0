"""Checkpoints as other programs write them, small; and traps."""

import argparse
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def under(prefix: str, model: nn.Module) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in model.state_dict().items()}


def training(path: Path, seed: int = 0) -> nn.Module:
    """What a plain script saves: everything in one dict."""
    model, optimizer = trained(seed)
    content = {
        "model": under("module.", model),
        "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(lr=0.01, out=Path("runs")),
        "epoch": 7,
        "best": np.float64(0.25),
        "loss": torch.tensor(0.5),
        "rng_state": torch.get_rng_state(),
    }
    torch.save(content, path)
    return model


def lightning(path: Path, seed: int = 0) -> nn.Module:
    """The keys and kinds of values of a Lightning checkpoint."""
    model, optimizer = trained(seed)
    content = {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": under("model.", model),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 3}}}},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(float("inf"))}},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.01, "width": 4},
    }
    torch.save(content, path)
    return model


def accelerate_state(folder: Path, seed: int = 0, safe: bool = True) -> nn.Module:
    """The files of Accelerate's save_state."""
    folder.mkdir()
    model, optimizer = trained(seed)
    if safe:
        save_file(model.state_dict(), folder / "model.safetensors")
    else:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(optimizer.state_dict(), folder / "optimizer.bin")
    states = {"step": 4, "numpy_random_seed": np.random.get_state(), "torch_manual_seed": torch.get_rng_state()}
    torch.save(states, folder / "random_states_0.pkl")
    return model


def sharded(folder: Path, seed: int = 0) -> nn.Module:
    """A model in two files that an index names."""
    folder.mkdir()
    model = net(seed)
    state = model.state_dict()
    names = list(state)
    parts = {"model-00001-of-00002.safetensors": names[:4], "model-00002-of-00002.safetensors": names[4:]}
    for file, held in parts.items():
        save_file({name: state[name] for name in held}, folder / file, {"format": "pt"})
    where = {name: file for file, held in parts.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "config.json").write_text("{}")
    return model


class Calls:
    """Calls something when it is read by pickle."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.made = function, args

    def __reduce__(self) -> Any:
        return self.made


def traps(mark: Path) -> dict[str, bytes]:
    """Pickles that would make a file when they are read, each in another way."""
    command = f"touch {mark}"
    byhand = {
        "GLOBAL": b"cposix\nsystem\n(S'" + command.encode() + b"'\ntR.",
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "STACK_GLOBAL from the memo": b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93\x8c"
        + bytes([len(command)])
        + command.encode()
        + b"\x85R.",
        "BUILD": b"\x80\x02cbuiltins\nset\n}X\x0c\x00\x00\x00__setstate__cos\nsystem\nsbX"
        + len(command).to_bytes(4, "little")
        + command.encode()
        + b"b.",
        "OBJ": b"(cos\nsystem\nS'" + command.encode() + b"'\no.",
    }
    made = {
        "os.system": Calls(os.system, command),
        "eval": Calls(eval, f"open({str(mark)!r}, 'w')"),
        "a method": Calls(Path.touch, mark),
        "open": Calls(open, str(mark), "w"),
        "a call of a call": Calls(Path(str(mark)).touch),
    }
    return {**byhand, **{name: pickle.dumps(value) for name, value in made.items()}}
