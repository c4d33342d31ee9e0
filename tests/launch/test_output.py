import ctypes
import multiprocessing
import os
import pty
import resource
import subprocess
import sys
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.launch.output import BAR_S, Lines, finish_output, send_output
from tests.ranks import PRELOAD


@dataclass(frozen=True)
class Way:
    """How `send_output` is called, and where the streams of the process go first: files, or `screen`."""

    rank: int = 0
    shown: bool = True
    prefix: bool = False
    screen: str = ""


def _child(folder: str, way: Way, body: Callable[[], None]) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(way.screen or f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
        setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8", closefd=False))
    logs = Path(folder, "logs")
    send_output(logs, way.rank, way.shown, way.prefix)
    body()
    finish_output()
    os._exit(0)


@dataclass(frozen=True)
class Ran:
    stdout: str
    stderr: str
    log: str


def run(folder: Path, body: Callable[[], None], way: Way = Way()) -> Ran:
    """Run `body` behind `send_output` in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=_child, args=(str(folder), way, body))
    process.start()
    process.join(30)
    code = process.exitcode
    process.kill()
    process.join()
    process.close()
    assert code == 0, (folder / "stderr").read_text()
    out, err = ("", "") if way.screen else ((folder / name).read_bytes().decode() for name in ("stdout", "stderr"))
    first, _, rest = (folder / "logs" / f"rank-{way.rank:05d}.log").read_bytes().decode().partition("\n")
    assert first.startswith(f"---- rank {way.rank}, ")
    return Ran(out, err, rest)


HIDDEN = Way(rank=3, shown=False)


def speak() -> None:
    print("out")
    print("err", file=sys.stderr)
    print("ü ✓")


@pytest.mark.parametrize("way, screen", [(Way(), "out\nü ✓\n"), (HIDDEN, "")])
def test_the_file_gets_all_and_the_screen_what_is_shown(tmp_path: Path, way: Way, screen: str) -> None:
    ran = run(tmp_path, speak, way)
    assert ran.log == "out\nerr\nü ✓\n"
    assert ran.stdout == screen
    assert ran.stderr == ("err\n" if way.shown else "")


def speak_by_other_means() -> None:
    os.write(1, b"descriptor\n")
    ctypes.CDLL(None).puts(b"C library")
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", "program"], check=True)
    process = multiprocessing.get_context("fork").Process(target=print, args=("fork",))
    process.start()
    process.join()


def test_a_hidden_rank_says_nothing_by_any_means(tmp_path: Path) -> None:
    ran = run(tmp_path, speak_by_other_means, HIDDEN)
    assert (ran.stdout, ran.stderr) == ("", "")
    assert ran.log == "descriptor\nC library\nprogram\nfork\n"


def test_of_a_shown_rank_the_file_has_what_python_wrote(tmp_path: Path) -> None:
    ran = run(tmp_path, speak_by_other_means)
    assert ran.stdout == "descriptor\nC library\nprogram\nfork\n"
    assert ran.log == "fork\n"


def be_killed_in_the_middle() -> None:
    print("said")
    print("begun", end="", flush=True)
    os._exit(0)


@pytest.mark.parametrize("way", [Way(), HIDDEN])
def test_lines_appear_at_once(tmp_path: Path, way: Way) -> None:
    assert run(tmp_path, be_killed_in_the_middle, way).log == "said\nbegun"


def show_a_bar() -> None:
    for done in range(5):
        print(f"\r{done}/4", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("\rhalf", end="", file=sys.stderr, flush=True)


@pytest.mark.parametrize("way", [Way(), HIDDEN])
def test_of_a_bar_the_file_gets_the_last_state(tmp_path: Path, way: Way) -> None:
    ran = run(tmp_path, show_a_bar, way)
    assert ran.log == "4/4\nhalf\n"
    assert ran.stderr == ("\r0/4\r1/4\r2/4\r3/4\r4/4\n\rhalf" if way.shown else "")


def test_several_ranks_on_one_screen(tmp_path: Path) -> None:
    ran = run(tmp_path, show_a_bar, Way(rank=2, prefix=True))
    assert ran.stderr == "[rank 2] 4/4\n[rank 2] half\n"
    assert ran.log == "4/4\nhalf\n"
    ran = run(tmp_path, be_killed_in_the_middle, Way(rank=1, prefix=True))
    assert ran.stdout == "[rank 1] said\n"


def describe_streams() -> None:
    for stream in (sys.stdout, sys.__stderr__):
        assert stream is not None
        facts = (stream.name, stream.fileno(), stream.isatty(), stream.encoding, stream.errors, stream.line_buffering)
        print(*facts)
    sys.stdout.buffer.write(b"bytes\n")
    sys.stdout.flush()
    sys.stdout.reconfigure(encoding="latin-1")  # type: ignore[union-attr]
    print(sys.stdout.encoding)


@pytest.mark.parametrize("shown, prefix, terminal", [(True, False, True), (True, True, False), (False, False, False)])
def test_the_streams_are_as_they_were(tmp_path: Path, shown: bool, prefix: bool, terminal: bool) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    try:
        ran = run(tmp_path, describe_streams, Way(shown=shown, prefix=prefix, screen=os.ttyname(theirs)))
        seen = os.read(ours, 4096).decode() if shown else ""
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.log == (
        f"<stdout> 1 {terminal} utf-8 strict True\n<stderr> 2 {terminal} utf-8 strict True\nbytes\nlatin-1\n"
    )
    mark = "[rank 0] " if prefix else ""
    assert seen == ("".join(f"{mark}{line}\n" for line in ran.log.splitlines()) if shown else "")


def print_in_colour() -> None:
    print("\x1b[1;31mred\x1b[0m and [plain]\x1b[2K")


def test_colours_are_for_the_screen(tmp_path: Path) -> None:
    ran = run(tmp_path, print_in_colour)
    assert ran.stdout == "\x1b[1;31mred\x1b[0m and [plain]\x1b[2K\n"
    assert ran.log == "red and [plain]\n"


def fill_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))  # what is beyond cannot be written, as on a full disk
    for _ in range(100):
        print("x" * 20)
        print("y" * 20, file=sys.stderr)


@pytest.mark.parametrize("way", [Way(screen="/dev/null"), HIDDEN, Way(prefix=True, screen="/dev/null")])
def test_a_full_disk_ends_nothing(tmp_path: Path, way: Way) -> None:
    assert 100 < len(run(tmp_path, fill_the_disk, way).log) <= 200


def test_a_second_start_writes_behind_the_first(tmp_path: Path) -> None:
    run(tmp_path, speak)
    run(tmp_path, speak, Way(screen="/dev/null"))
    text = (tmp_path / "logs" / "rank-00000.log").read_text()
    assert text.count("out\n") == 2
    second = text.rpartition("---- rank ")[2].splitlines()[1:]
    assert [line for line in second if line] == ["out", "err", "ü ✓"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(UserError, match=r"rank 1 cannot be written: .*exists(.|\n)*--log-dir"):
        send_output(tmp_path / "logs", 1, True)


class TestLines:
    def test_text_passes_at_once(self) -> None:
        lines = Lines()
        assert [lines.feed(part) for part in (b"a", b"b\nc", b"\n")] == [b"a", b"b\nc", b"\n"]
        assert lines.end() == b""

    def test_what_is_overwritten_is_dropped(self) -> None:
        lines = Lines()
        assert [lines.feed(part) for part in (b"\r1", b"\r2", b"\r3\n", b"x\r\n")] == [b"", b"", b"3\n", b"x\n"]

    def test_a_carriage_return_behind_text_that_has_passed(self) -> None:
        lines = Lines()
        assert [lines.feed(part) for part in (b"10%", b"\r20%", b"\r30%", b"\n")] == [b"10%", b"", b"", b"\n30%\n"]

    def test_a_bar_that_lasts_is_seen_now_and_then(self) -> None:
        now = 0.0
        lines = Lines(clock=lambda: now)
        assert lines.feed(b"\r1") == b""
        now += BAR_S + 1
        assert lines.feed(b"\r2") == b"2\n"
        assert lines.feed(b"\r3") == b""
        assert lines.end() == b"3\n"

    def test_whole_lines_only(self) -> None:
        lines = Lines(whole=True)
        assert [lines.feed(part) for part in (b"a", b"b\nc", b"d")] == [b"", b"ab\n", b""]
        assert lines.end() == b"cd\n"
