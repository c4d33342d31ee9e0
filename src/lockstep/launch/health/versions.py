"""Versions of what a rank is made of. All nodes must have the same."""

import torch

from lockstep.launch.facts import versions
from lockstep.launch.health.check import Asked, Check

_OLDEST_TORCH = (2, 9)


def facts() -> dict[str, str]:
    """Name and version; what this installation lacks is left out."""
    found = versions()
    found.pop("CUDA", None)  # said below, also where no GPU is seen
    built_for = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
    found |= {f"{name} of torch": version for name, version in built_for.items() if version}
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        found["NCCL"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def checks(asked: Asked) -> list[Check]:
    """One line with all versions, and what is too old."""
    return judge(facts(), torch.distributed.is_available())


def judge(found: dict[str, str], distributed: bool) -> list[Check]:
    """The lines for these versions."""
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    torch_version = tuple(int(part) for part in found["torch"].split("+")[0].split(".")[:2])
    if torch_version < _OLDEST_TORCH:
        need = ".".join(map(str, _OLDEST_TORCH))
        return [Check("versions", "versions", "fail", text, f"install torch {need} or later")]
    if not distributed:
        advice = "install a build of torch with torch.distributed"
        return [Check("versions", "versions", "fail", f"{text}; without torch.distributed", advice)]
    return [Check("versions", "versions", "ok", text)]
