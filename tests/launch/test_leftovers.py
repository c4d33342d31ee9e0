import multiprocessing
import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest

from lockstep.launch.leftovers import scratch, sweep


@pytest.fixture(autouse=True)
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_folder_goes_in_the_end(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch() as folder:
        (folder / "records").mkdir()
        assert folder.parent == tmp_path
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_sockets_of_workers_lie_in_it(tmp_path: Path) -> None:
    config = getattr(multiprocessing.current_process(), "_config")  # noqa: B009
    before = config.get("tempdir")
    with scratch() as folder:
        assert get_temp_dir() == str(folder)
    assert config.get("tempdir") == before


def test_only_folders_without_a_launcher_are_swept(tmp_path: Path) -> None:
    (tmp_path / "lockstep-left" / "deep").mkdir(parents=True)
    (tmp_path / "lockstep-left" / ".launch").touch()
    (tmp_path / "lockstep-of-a-user").mkdir()
    (tmp_path / "lockstep-a-file").touch()
    (tmp_path / "other").mkdir()
    with scratch() as folder:
        sweep()
        assert {path.name for path in tmp_path.iterdir()} == {
            folder.name,
            "lockstep-a-file",
            "lockstep-of-a-user",
            "other",
        }


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "lockstep-link").symlink_to(tmp_path / "precious")
    sweep()
    assert (tmp_path / "precious").exists()
