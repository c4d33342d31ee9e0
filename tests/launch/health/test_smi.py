from pathlib import Path

import pytest

from lockstep.launch.health import smi
from tests.launch.health import fake_smi


def test_gpus_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi.install(tmp_path, monkeypatch)
    found = smi.gpus()
    assert found is not None
    first, second = found
    assert (first.index, first.name, first.memory_mib, first.used_mib) == (0, "NVIDIA H100 80GB HBM3", 81559, 4)
    assert (first.driver, first.compute_mode, first.pcie_gen, first.pcie_lanes) == ("550.54.15", "Default", 5, 16)
    assert (first.ecc_errors, first.throttle, first.mig) == (0, 1, False)
    assert (second.ecc_errors, second.throttle, second.used_mib) == (3, 0x40, 40213)
    assert smi.cuda_of_driver() == "12.4"


def test_fields_that_a_driver_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi.install(tmp_path, monkeypatch, {"--query-gpu=index*": fake_smi.GPUS})
    found = smi.gpus()
    assert found is not None
    assert [(gpu.pcie_gen, gpu.ecc_errors) for gpu in found] == [(0, 0), (0, 0)]
    assert smi.cuda_of_driver() == ""


def test_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert smi.gpus() is None
    assert smi.links() == {}
    assert smi.nvlink_bytes_per_s() == {}


def test_a_name_with_a_comma_and_values_that_are_missing() -> None:
    (gpu,) = smi.parse("3, Card, with comma, [N/A], [N/A], 470.1, Prohibited\n", {"mig.mode.current": "Enabled\n"})
    assert (gpu.index, gpu.name, gpu.memory_mib, gpu.mig) == (3, "Card, with comma", 0, True)


def test_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi.install(tmp_path, monkeypatch)
    assert smi.links() == {(0, 1): "NV18", (1, 0): "NV18"}
    assert smi.nvlink_bytes_per_s() == {0: pytest.approx(2 * 26.562e9), 1: pytest.approx(26.562e9)}


def test_a_matrix_of_four_over_two_sockets() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tPIX\tSYS\tSYS\t0-15\nGPU2\tSYS\tSYS\t X \tPHB\t16-31\n"
    found = smi.parse_links(text)
    assert (found[0, 1], found[0, 3], found[2, 3]) == ("PIX", "SYS", "PHB")
    assert len(found) == 6
