from pathlib import Path

import pytest

from lockstep.launch.earlier import gpu_memory
from tests.launch.health.fake_smi import install


def test_megabytes_of_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"--query-compute-apps=*": "101, 1024\n102, 20480\n101, 512\n"})
    assert gpu_memory.by_pid() == {101: 1536, 102: 20480}


@pytest.mark.parametrize(
    ("text", "seen"),
    [("", {}), ("101, [N/A]\n", {101: 0}), ("No running processes found\n", {}), ("[Not Supported], 3\n", {})],
)
def test_what_a_driver_may_not_say(text: str, seen: dict[int, int]) -> None:
    assert gpu_memory.parse(text) == seen


def test_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_memory.by_pid() == {}


def test_devices_among_open_files() -> None:
    files = ["/dev/nvidia10", "/dev/nvidia2", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm", "socket:[1]"]
    assert gpu_memory.devices(files) == ["2", "10"]
