"""Every form in which torch has written files, and what is wrong with a zip."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.runtime.foreign.torch_file import damaged_records, looks_like_a_pickle, read_torch_file, records
from lockstep.runtime.foreign.window import DamagedFileError, NoCheckpointError, Window
from tests.runtime.foreign.samples import net


def test_zip_old_and_plain_say_what_they_are(tmp_path: Path) -> None:
    state = net().state_dict()
    torch.save(state, tmp_path / "new.pt")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name, form in (("new.pt", "torch file"), ("old.pt", "torch file in the format before 1.6")):
        found = read_torch_file(Window.of(tmp_path / name))
        assert found.form == form and found.origins == []
        assert all(torch.equal(found.root[key].load(), value) for key, value in state.items())
    for data in (b"\x80\x04\x95", b"(lp0\n.", b"cos\nsystem\n."):
        assert looks_like_a_pickle(Window.of(data))
    for data in (b"", b"\x80\x99", b"N", b"import os\n", b"(not a pickle).", b"N. and more"):
        assert not looks_like_a_pickle(Window.of(data))


def test_a_flipped_bit_is_found_and_files_without_sums_are_let_be(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"a": torch.arange(100.0)}, path)
    assert list(damaged_records(Window.of(path))) == []
    data = bytearray(path.read_bytes())
    data[records(Window.of(path))["a/data/0"][1].start + 40] ^= 1
    path.write_bytes(data)
    assert list(damaged_records(Window.of(path))) == ["a/data/0"]
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(100.0)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert list(damaged_records(Window.of(path))) == []


def test_zips_of_others_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(NoCheckpointError, match=r"arrays of numpy"):
        read_torch_file(Window.of(tmp_path / "a.npz"))
    torch.save({"a": torch.ones(50)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as source,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(NoCheckpointError, match="compressed"):
        read_torch_file(Window.of(tmp_path / "b.pt"))


def test_a_missing_storage_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(5), "b": torch.ones(6)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as source, zipfile.ZipFile(tmp_path / "b.pt", "w") as target:
        for name in source.namelist():
            if not name.endswith("data/1"):
                target.writestr(name, source.read(name))
    with pytest.raises(DamagedFileError, match="storage 1 is missing"):
        read_torch_file(Window.of(tmp_path / "b.pt"))


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(5)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as source, zipfile.ZipFile(tmp_path / "b.pt", "w") as target:
        for name in source.namelist():
            target.writestr(name, b"big" if name.endswith("byteorder") else source.read(name))
    with pytest.raises(NoCheckpointError, match="big-endian"):
        read_torch_file(Window.of(tmp_path / "b.pt"))
