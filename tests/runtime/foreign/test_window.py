"""Bytes are read where they are asked for, and never beyond."""

from pathlib import Path

import pytest

from lockstep.runtime.foreign.window import DamagedFileError, Window


def test_parts_of_parts(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    for whole in (Window.of(path), Window.of(b"0123456789")):
        part = whole.part(2, 6).part(1, 3)
        assert part.read() == b"345" and part.read(2) == b"34"
        with part.open() as file:
            assert file.read() == b"345"
            file.seek(-1, 2)
            assert (file.read(5), file.tell()) == (b"5", 3)
        with pytest.raises(DamagedFileError, match="ends 1 bytes too early"):
            whole.part(2, 6).part(3, 4)


def test_a_file_that_shrinks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    window = Window.of(path)
    path.write_bytes(b"01")
    with pytest.raises(DamagedFileError, match="8 bytes too early"):
        window.read()
