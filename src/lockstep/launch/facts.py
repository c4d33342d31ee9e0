"""What must be equal on all machines of a run, and can be known before it starts."""

import platform
from collections.abc import Mapping
from typing import Any

import torch

from lockstep import __version__


def versions() -> dict[str, str]:
    """Of Python, torch and Lockstep, and the kinds of GPUs."""
    facts = {"Python": platform.python_version(), "torch": torch.__version__, "lockstep": __version__}
    if torch.cuda.is_available():
        kinds = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        facts["GPUs"] = ", ".join(dict.fromkeys(kinds))
        facts["CUDA"] = str(torch.version.cuda or torch.version.hip)
    return facts


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested values by their dotted names, so that a difference is named: {"optim.lr": "0.02"}."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = str(value)
    return found
