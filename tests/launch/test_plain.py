"""A script as torchrun would run it. In a process of its own, since it changes directory, arguments and threads."""

import subprocess
import sys
from pathlib import Path

RUN = """
import os, sys
os.environ["WORLD_SIZE"] = {world!r}
from pathlib import Path
from lockstep.launch.plain import plain_rank
from lockstep.trace.script import Program
plain_rank(Program(Path({script!r}), ("--lr", "1"), Path({cwd!r})))
print("back")
"""


def run(tmp_path: Path, text: str, world: str = "2") -> subprocess.CompletedProcess[str]:
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "train.py"
    script.write_text(text)
    (tmp_path / "code" / "beside.py").write_text("value = 4")
    program = RUN.format(world=world, script=str(script), cwd=str(tmp_path))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_arguments_folder_and_modules_beside_it(tmp_path: Path) -> None:
    text = "import os, sys, beside\nprint(__name__, sys.argv[1:], beside.value, os.getcwd())"
    done = run(tmp_path, text)
    assert done.stdout.split("\n")[:2] == [f"__main__ ['--lr', '1'] 4 {tmp_path}", "back"], done.stderr


def test_threads_are_torchruns(tmp_path: Path) -> None:
    done = run(tmp_path, "import os, torch; print(os.environ.get('OMP_NUM_THREADS'), torch.get_num_threads())")
    assert done.stdout.split("\n")[0] == "1 1", done.stderr


def test_an_exit_with_0_is_an_end_and_any_other_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert run(tmp_path / "a", "import sys; sys.exit(0)").stdout == "back\n"
    done = run(tmp_path / "b", "import sys; sys.exit(3)")
    assert (done.returncode, done.stdout) == (3, "")
