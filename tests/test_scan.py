"""`lockstep scan`: what is found, what is said, and how it ends."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.core.errors import UserError
from lockstep.core.outcome import Exit
from lockstep.runtime.scanning import progress
from lockstep.runtime.streams import preserved
from lockstep.scan import scan
from tests.commands import Command, lockstep
from tests.recipes.pictures import TWELVE, plant, voc_folder
from tests.test_architecture import REPO

BAD = f"recipe={REPO}/tests/bad_samples.py:BadSamples"
SMALL = ["options.crop=32", "options.eval_size=64", "options.depth=3", "options.classes=5"]


def found(capsys: pytest.CaptureFixture[str], *overrides: str, **options: Any) -> tuple[Exit, dict[str, Any]]:
    """Exit code and JSON of a scan in this process."""
    with preserved():
        code = scan(None, overrides, json_path="-", **options)
    return code, json.loads(capsys.readouterr().out)


def test_a_planted_dozen_is_found_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = voc_folder(tmp_path / "voc", train=30, val=10)
    options = ["recipe=voc", f"options.root={root}", *SMALL]
    code, clean = found(capsys, *options)
    assert (code, clean["findings"]) == (Exit.DONE, [])
    assert [(one["split"], one["read"]) for one in clean["splits"]] == [("train", 30), ("val", 10)]

    planted = plant(root, *TWELVE)
    code, values = found(capsys, *options)
    assert code == Exit.FAILED
    assert (len(planted), values["found"], len(values["findings"])) == (12, 12, 12)
    assert {one["split"] for one in values["findings"]} == {"train"}
    by_index = {one["index"]: one for one in values["findings"]}
    for one in planted:
        told = by_index[one.index]
        assert one.file in told["files"].split(", ")
        assert one.file in told["text"] or one.index is None
        assert all(word in told["text"] for word in one.says), told
    again = found(capsys, *options, workers=1)[1]
    assert (again["findings"], again["splits"]) == (values["findings"], values["splits"])


def test_the_command_with_its_report_and_exit_code(tmp_path: Path) -> None:
    done = lockstep(
        tmp_path / "a", "scan", BAD, "options.faults='13:label,40:nan'", "--json", "all.json", "--show", "1"
    )
    assert done.code == Exit.FAILED
    assert "label outside the classes: 1\n  train 13, images/013.png: 9 (12 of 36), -1 (1 of 36)" in done.stdout
    assert "2 found: 80 samples in " in done.stdout
    assert "a recipe that prints" not in done.stdout
    assert "a recipe that prints" in done.stderr
    assert json.loads((tmp_path / "a" / "all.json").read_text())["found"] == 2


def test_one_split(capsys: pytest.CaptureFixture[str]) -> None:
    faults = ["options.faults='1:nan'", "options.val_faults='2:nan'"]
    for split, code in (("train", 1), ("val", 2)):
        values = found(capsys, BAD, *faults, split=split)[1]
        assert [(one["split"], one["index"]) for one in values["findings"]] == [(split, code)]
        assert [one["split"] for one in values["splits"]] == [split]


def test_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    code, values = found(capsys, BAD, "options.stream=true", "options.faults='13:label,40:shape'")
    assert code == Exit.FAILED
    assert [(one["kind"], one["index"]) for one in values["findings"]] == [("shape", 40), ("label", 13)]
    assert (values["splits"][0]["samples"], values["splits"][0]["read"]) == (None, 60)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("docstrings", "two_branches", "digit_scenes")]


@pytest.mark.parametrize("recipe", ["points", *SLOW])
def test_recipes_of_ours_are_silent(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, values = found(capsys, f"recipe={recipe}")
    assert (code, values["findings"]) == (Exit.DONE, [])


def tell_often() -> None:
    progress.PLAIN_EVERY_S = 0.1


def test_ctrl_c_tells_what_was_found_by_then(tmp_path: Path) -> None:
    options = ["options.faults='3:nan,9:hang'", "options.length=100000", "--split", "train", "--json", "seen.json"]
    command = Command(tmp_path / "a", "scan", BAD, *options, before=tell_often)
    command.until(lambda: "samples, 1 found" in command.said()[1])
    os.kill(command.pid, signal.SIGINT)
    done = command.wait()
    assert done.code == Exit.INTERRUPTED
    assert "train 3, images/003.png: image: 1 NaN" in done.stdout
    assert "NOT COMPLETE: interrupted" in done.stdout
    values = json.loads((tmp_path / "a" / "seen.json").read_text())
    assert (values["complete"], values["found"]) == (False, 1)


def test_no_worker_outlives_a_killed_scan(tmp_path: Path) -> None:
    command = Command(tmp_path / "a", "scan", BAD, "options.faults='0:hang,1:hang,30:hang'", "--split", "train")
    command.until(lambda: len(psutil.Process(command.pid).children()) >= 1)
    workers = psutil.Process(command.pid).children()
    os.kill(command.pid, signal.SIGKILL)
    command.process.join()
    deadline = time.monotonic() + 10
    while any(worker.is_running() and worker.status() != "zombie" for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("overrides", "options", "words"),
    [
        (["recipe=voc", "options.root=nowhere"], {}, "nowhere"),
        (["recipe=pionts"], {}, "pionts"),
        (["recipe=points", "options.val_samples=0"], {"split": "val"}, "no validation set"),
        ([BAD, "options.length=0"], {}, "empty data set"),
        (["recipe=points"], {"split": "test"}, "--split test"),
        (["recipe=points"], {"json_path": "no/such/folder/x.json"}, "cannot be written"),
    ],
)
def test_mistakes_of_the_user(overrides: list[str], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        scan(None, overrides, **options)


def test_a_recipe_whose_data_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from lockstep.recipes.points import Points\n\n"
        "class Mine(Points):\n    def train_data(self):\n        raise KeyError('path')\n"
    )
    done = lockstep(tmp_path / "a", "scan", f"recipe={tmp_path}/mine.py:Mine")
    assert done.code == Exit.MISUSE
    assert done.stderr.startswith("train_data() raised KeyError: 'path' (mine.py:5 in train_data).")
    assert "Traceback" not in done.output


def test_a_stream_without_a_sample_is_empty() -> None:
    with pytest.raises(UserError, match="empty data set"), preserved():
        scan(None, [BAD, "options.stream=true", "options.length=0"], split="train")


def fill_stdout() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    done = Command(tmp_path / "a", "scan", BAD, "--split", "train", "--json", "x.json", before=fill_stdout).wait()
    assert done.code == Exit.MISUSE
    assert "the report cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.output
    assert json.loads((tmp_path / "a" / "x.json").read_text())["found"] == 0
