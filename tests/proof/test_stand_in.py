"""CPUs for GPUs: a program that names GPUs is proven as one that does not."""

from pathlib import Path

import pytest
import torch

from lockstep.proof.stand_in import here, is_wanted
from tests.programs import catalog
from tests.proof.proving import prove_program


def test_only_a_gpu_becomes_the_cpu() -> None:
    assert here("cuda") == here("cuda:3") == "cpu"
    assert here(torch.device("cuda", 1)) == torch.device("cpu")
    for other in ("cpu", "mean", "cuda.txt", torch.device("meta"), 3, None):
        assert here(other) == other


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        ("rank 0 raised AssertionError: Torch not compiled with CUDA enabled", True),
        ("rank 1 raised RuntimeError: Found no NVIDIA driver on your system", True),
        ("rank 0 raised ValueError: device_ids can only be used with GPU modules", True),
        ("rank 0 raised ValueError: 3 classes", False),
        ("", False),
    ],
)
def test_when_it_is_wanted(problem: str, wanted: bool) -> None:
    assert is_wanted(problem) is wanted


def test_a_program_for_gpus_is_proven(tmp_path: Path) -> None:
    proven = prove_program(tmp_path, catalog.named_file("right/gpu_only.py"))
    assert proven.done.code == 0, proven.done.output
