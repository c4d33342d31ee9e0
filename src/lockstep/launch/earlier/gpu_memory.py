"""Which processes hold GPU memory, as NVIDIA's driver says."""

import re

from lockstep.launch.tools import output

_DEVICE = re.compile(r"^/dev/nvidia(\d+)$")


def by_pid() -> dict[int, int]:
    """MiB of GPU memory for each process on the GPUs of this machine; empty where the driver does not say."""
    text = output("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    return parse(text or "")


def parse(text: str) -> dict[int, int]:
    """The lines `pid, MiB`; a process on several GPUs has several. `[N/A]` and other words count as 0 MiB."""
    used: dict[int, int] = {}
    for line in text.splitlines():
        pid, _, mib = (part.strip() for part in line.partition(","))
        if pid.isdecimal():
            used[int(pid)] = used.get(int(pid), 0) + (int(mib) if mib.isdecimal() else 0)
    return used


def devices(files: list[str]) -> list[str]:
    """Numbers of the NVIDIA devices among the open files of a process."""
    return sorted({found[1] for name in files if (found := _DEVICE.match(name))}, key=int)
