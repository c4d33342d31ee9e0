"""`auto` takes what the device has in hardware; each format casts what it says and nothing else."""

from typing import Any

import pytest
import torch
from torch import nn

from lockstep.runtime import precision
from lockstep.runtime.precision import Precision, resolve

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("name", ["fp64", "fp32", "bf16", "fp16"])
@pytest.mark.parametrize("device", [CPU, CUDA])
def test_a_stated_format_is_taken(name: Any, device: torch.device) -> None:
    assert resolve(name, device) == name


GPUS = [((6, 1), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")]


@pytest.mark.parametrize(("capability", "name"), GPUS)
def test_auto_on_a_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], name: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve("auto", CUDA) == name


@pytest.mark.parametrize("avx", [True, False])
@pytest.mark.parametrize("amx", [True, False])
def test_auto_on_a_cpu(monkeypatch: pytest.MonkeyPatch, avx: bool, amx: bool) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    assert resolve("auto", CPU) == ("bf16" if avx or amx else "fp32")


def test_auto_on_a_cpu_of_a_torch_that_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert resolve("auto", CPU) == "fp32"


@pytest.mark.parametrize(
    ("name", "dtype", "inside", "scales"),
    [
        ("fp64", torch.float64, torch.float32, False),
        ("fp32", None, torch.float32, False),
        ("bf16", None, torch.bfloat16, False),
        ("fp16", None, torch.float16, True),
    ],
)
def test_each_format_on_a_cpu(name: Any, dtype: torch.dtype | None, inside: torch.dtype, scales: bool) -> None:
    made = Precision.of(name, CPU)
    assert made.name == name
    assert made.dtype == dtype
    assert made.scaler.is_enabled() is scales
    assert made.low is (inside != torch.float32)
    model = nn.Linear(2, 2)
    with made.autocast():
        assert model(torch.ones(1, 2)).dtype == inside
    assert model.weight.dtype == torch.float32  # weights stay
    assert not torch.is_autocast_enabled("cpu")


def test_double_survives_autocast_of_other_formats() -> None:
    model = nn.Linear(2, 2).double()
    with Precision.of("fp64", CPU).autocast():
        assert model(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float64


def test_the_hardware_question_has_an_answer_here() -> None:
    assert precision._cpu_has_bf16() in (True, False)
