"""Programs that stand in for a scheduler's."""

import os
from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Put programs, each a few lines of bash, in front of all others."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    for name, text in programs.items():
        (place / name).write_text(f"#!/bin/bash\n{text}\n")
        (place / name).chmod(0o755)
    if str(place) not in os.environ["PATH"].split(os.pathsep):
        monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
