"""NCCL's own words: its warnings, and torch's flight recorder, caught in files and read when a run has failed.

The files are written by NCCL and by torch's NCCL process group, so on a machine without GPUs there are none.
"""

import io
import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.launch.frames import is_users, spot_of

_WARNING = re.compile(r"NCCL (WARN|ERROR) (?P<text>.+)")
_LIMIT = 3


def variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What ranks are told, where the user has not set it: warnings and a flight record of a time-out go to files.

    Who has asked NCCL to speak hears it where it always speaks.
    """
    log = {} if "NCCL_DEBUG" in environ else {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/nccl-%h-%p.txt"}
    return {
        **log,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/flight-",  # its older name
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/flight-",
    }


def warnings(folder: Path) -> list[str]:
    """The different warnings of all ranks of this machine, the first ones first."""
    found: dict[str, None] = {}
    for path in sorted(folder.glob("nccl-*.txt")):
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if warning := _WARNING.search(line):
                    found[warning["text"].strip()] = None
    return list(found)[:_LIMIT]


def stuck(folder: Path) -> dict[int, str]:
    """The first collective of each rank that was not completed, as the flight recorder tells it; {} without records."""
    found = {}
    for path in sorted(folder.glob("flight-*")):
        rank = path.name.removeprefix("flight-")
        with suppress(OSError, pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError):
            entries = _Plain(io.BytesIO(path.read_bytes())).load()["entries"]
            open_ones = [entry for entry in entries if entry.get("state") != "completed" and not entry.get("is_p2p")]
            if open_ones:
                found[int(rank)] = _words(open_ones[0])
    return found


def notes(folder: Path) -> str:
    """Both in one text of few lines, "" where there is nothing."""
    lines = [f"  NCCL: {text}" for text in warnings(folder)]
    lines += [f"  Rank {rank}, flight recorder: {text}" for rank, text in sorted(stuck(folder).items())]
    return "\n".join(lines)


def _words(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("profiling_name", "a collective")).removeprefix("nccl:")
    number = entry.get("collective_seq_id", entry.get("seq_id", "?"))
    sizes = entry.get("input_sizes") or ""
    frame = next((one for one in entry.get("frames") or () if is_users(str(one.get("filename")))), None)
    place = f", {spot_of(frame['filename'], frame['line'], frame['name'])}," if frame else ""
    return f"{name} number {number} of sizes {sizes}{place} is {entry.get('state')}, not completed"


class _Plain(pickle.Unpickler):
    """Lists, dicts, numbers and strings only: a file in a folder that others may write to is not trusted."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a flight record")
