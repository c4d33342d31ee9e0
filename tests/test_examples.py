"""The examples do what they say: a recipe by its name, and a loop of one's own with the same losses at every N."""

import contextlib
import io
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.commands import lockstep
from tests.ranks import run_ranks

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_the_recipe_trains(tmp_path: Path) -> None:
    recipe = f"recipe={EXAMPLES / 'my_recipe.py'}:MyRecipe"
    done = lockstep(tmp_path / "here", "train", recipe, "options.hidden=8", "run.dir=run", "--max-steps", "2")
    assert done.code == 0, done.output
    assert (tmp_path / "here" / "run" / "checkpoints" / "step-00000002" / "model.safetensors").is_file()


def own_loop(folder: Path, *argv: str) -> list[tuple[str, float]]:
    """What rank 0 prints: (`step 10`, loss), (`epoch 1`, accuracy)."""
    if os.environ["WORLD_SIZE"] == "1":  # as `python examples/own_loop.py`
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
    sys.argv = ["own_loop.py", "--folder", str(folder), *argv]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")
    return [
        (where, float(value)) for where, value in re.findall(r"^(\w+ +\d+): \w+ (.*)$", said.getvalue(), re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[tuple[str, float]]]]:
    """Runs of two epochs at N = 1 and 2."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, {n: run_ranks(own_loop, n, folder / str(n), "--epochs", "2")[0] for n in (1, 2)}


@pytest.mark.slow
def test_the_loop_has_the_same_losses_on_one_and_two_ranks(
    whole: tuple[Path, dict[int, list[tuple[str, float]]]],
) -> None:
    one, two = whole[1][1], whole[1][2]
    assert [where for where, _ in one] == ["step  10", "step  20", "epoch 1", "step  30", "step  40", "epoch 2"]
    assert [where for where, _ in two] == [where for where, _ in one]
    assert [value for _, value in two] == pytest.approx([value for _, value in one], rel=1e-5)
    assert one[-1][1] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (1, 2)])
def test_the_loop_resumes(
    whole: tuple[Path, dict[int, list[tuple[str, float]]]], tmp_path: Path, before: int, after: int
) -> None:
    run_ranks(own_loop, before, tmp_path, "--max-steps", "30")
    rest = run_ranks(own_loop, after, tmp_path, "--resume", "--epochs", "2")[0]
    unbroken = whole[1][after][-2:]
    assert rest == [(where, pytest.approx(value, rel=1e-5)) for where, value in unbroken]
    ended, expected = (
        load_file(run / "step-00000046" / "model.safetensors") for run in (tmp_path, whole[0] / str(after))
    )
    exact = before == after
    assert all(ended[key].allclose(expected[key], rtol=0, atol=0 if exact else 1e-5) for key in expected)


def test_the_loop_stays_short() -> None:
    assert len((EXAMPLES / "own_loop.py").read_text().splitlines()) < 110


@pytest.mark.slow
def test_the_loop_is_proven(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copy(EXAMPLES / "own_loop.py", folder)
    done = lockstep(folder, "verify", "own_loop.py", "--resume-args", "--resume")
    assert done.code == 0, done.output
    assert "PASS     shard" in done.output and "PASS     resume" in done.output
