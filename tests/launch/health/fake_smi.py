"""A program `nvidia-smi` that answers as the real one does."""

from collections.abc import Mapping
from pathlib import Path

import pytest

GPUS = """0, NVIDIA H100 80GB HBM3, 81559, 4, 550.54.15, Default
1, NVIDIA H100 80GB HBM3, 81559, 40213, 550.54.15, Default
"""
BANNER = """Mon Nov 30 06:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-55\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t56-111\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
)
NVLINK = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
    "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
)
ANSWERS = {
    "--query-gpu=index*": GPUS,
    "--query-gpu=pcie.link.gen.max*": "5\n5\n",
    "--query-gpu=pcie.link.width.max*": "16\n16\n",
    "--query-gpu=ecc*": "0\n3\n",
    "--query-gpu=clocks_throttle*": "0x0000000000000001\n0x0000000000000040\n",
    "--query-gpu=mig*": "Disabled\n[N/A]\n",
    "--query-compute-apps=*": "1, 40000\n",
    "topo -m": TOPOLOGY,
    "nvlink --status": NVLINK,
    "": BANNER,
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str] = ANSWERS) -> None:
    """Put it first on PATH. answers: for arguments that match a shell pattern; what matches none is refused."""
    cases = []
    for number, (pattern, text) in enumerate(answers.items()):
        (folder / f"answer-{number}").write_text(text)
        shown = pattern.replace(" ", "\\ ") or '""'
        cases.append(f"{shown}) exec cat {folder}/answer-{number};;")
    refusal = '*) echo "Field \\"x\\" is not a valid field to query."; exit 2;;'
    program = folder / "nvidia-smi"
    program.write_text("\n".join(["#!/bin/sh", 'case "$*" in', *cases, refusal, "esac", ""]))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
