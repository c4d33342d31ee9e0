import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.launch.stacks import Frame
from lockstep.launch.stacks.spy import find, parse


def dumped(tid: int, *frames: tuple[str, str]) -> dict[str, Any]:
    return {
        "os_thread_id": tid,
        "thread_name": None,
        "active": True,
        "frames": [{"filename": file, "line": 3, "name": name} for file, name in frames],
    }


def test_the_main_thread_is_the_one_with_the_processs_number() -> None:
    threads = parse(7, [dumped(8, ("/a.py", "A.f")), dumped(7, ("/b.py", "g.<locals>.<lambda>"))])
    assert [(thread.main, thread.frames) for thread in threads] == [
        (True, (Frame("/b.py", 3, "<lambda>"),)),
        (False, (Frame("/a.py", 3, "f"),)),
    ]


@pytest.mark.parametrize("dump", [[], [dumped(7)]])
def test_no_frames_at_all_are_no_answer(dump: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="frames"):
        parse(7, dump)


def test_the_program_beside_python_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find() == str(Path(sys.executable).with_name("py-spy"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find() is None
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert find() == str(program)
