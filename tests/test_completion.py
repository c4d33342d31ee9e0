"""The shells themselves: what the printed script makes bash, zsh and fish offer."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep.completion import SHELLS, script
from lockstep.core.errors import UserError

BIN = str(Path(sys.executable).parent)
LINES = {
    "lockstep tra": ["train"],
    "lockstep train optim.lr_": ["optim.lr_scaling=", "optim.lr_cap="],
    "lockstep train run.device=cu": ["run.device=cuda"],
    "lockstep train recipe=mine.py:M": ["recipe=mine.py:Mine"],
    "lockstep train my": ["my file.yaml"],
    "lockstep completion f": ["fish"],
}
BASH = r"""
source <(lockstep completion bash)
complete -p lockstep
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line}
    _lockstep lockstep
    printf '%s\n' "${COMPREPLY[@]}" ==
done
"""
FISH = """
lockstep completion fish | source
while read line
    complete -C $line
    echo ==
end
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("class Mine(Recipe): ...\n")
    (tmp_path / "my file.yaml").write_text("")
    return tmp_path


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def ask(folder: Path, argv: list[str]) -> list[list[str]]:
    """What a shell offers for each line."""
    lines = "".join(f"{line}\n" for line in LINES)
    done = subprocess.run(
        argv, input=lines, cwd=folder, env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert not done.stderr
    return [block.strip("\n").split("\n") for block in done.stdout.split("==\n")[:-1]]


def test_bash(folder: Path) -> None:
    need("bash")
    found = ask(folder, ["bash", "--norc", "-c", BASH])
    assert found[0].pop(0) == "complete -o default -F _lockstep lockstep"
    # bash has cut the word at = and : and puts back what stands before
    expected = [[one.rpartition("=" if "device" in one else ":")[2] for one in offer] for offer in LINES.values()]
    assert found == [[one.replace(" ", "\\ ") for one in offer] for offer in expected]


def test_fish(folder: Path) -> None:
    need("fish")
    found = ask(folder, ["fish", "--no-config", "-c", FISH])
    assert [sorted(line.partition("\t")[0] for line in offer) for offer in found] == [
        sorted(offer) for offer in LINES.values()
    ]


def typed(folder: Path, argv: list[str], keys: list[tuple[str, str]], timeout_s: float = 20) -> list[str]:
    """What a terminal shows after each of some keys, waited for until a text is there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(argv[0], argv, environment())
    shown = []
    try:
        for text, awaited in keys:
            os.write(terminal, text.encode())
            screen, deadline = "", time.monotonic() + timeout_s
            while awaited not in screen and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.1)[0]:
                    screen += os.read(terminal, 65536).decode(errors="replace")
            shown.append(screen)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return shown


def test_zsh(folder: Path) -> None:
    """In a terminal, where its completion lives: what TAB makes of the line."""
    need("zsh")
    ready = f"autoload -U compinit; compinit -u -d {folder}/.dump; source <(lockstep completion zsh); print rea''dy\n"
    keys = [
        (ready, "ready"),
        ("lockstep tra\t", "lockstep train "),
        ("\x15lockstep train run.device=cu\t", "run.device=cuda "),
        ("\x15lockstep train recipe=mine.py:M\t", "recipe=mine.py:Mine "),
        ("\x15lockstep train my\t", r"my\ file.yaml "),
        ("\x15lockstep train optim.lr_\t\t", "optim.lr_cap=  -- Largest factor"),
    ]
    for (line, awaited), screen in zip(keys, typed(folder, ["zsh", "-f", "-i"], keys), strict=True):
        assert awaited in screen, (line, screen)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_whole(shell: str) -> None:
    assert "__complete" in script(shell) and script(shell).endswith("\n")


def test_another_shell_is_refused() -> None:
    with pytest.raises(UserError, match="bash, zsh, fish"):
        script("csh")
