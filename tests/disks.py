"""Small and read-only file systems for tests; only root may mount them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEEDS_ROOT = "only root may mount a file system of its own"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a tmpfs of `size` (as `256k`) at a folder, which is made where it is missing."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip(NEEDS_ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "lockstep-test", folder], check=False)
    if done.returncode:
        pytest.skip(NEEDS_ROOT)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a mounted disk: `size=4m`, `ro`, `rw`."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)
