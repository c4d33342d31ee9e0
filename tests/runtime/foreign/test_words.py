"""What was found, in lines and as JSON."""

import json
import math
from pathlib import Path

import torch

from lockstep.runtime.foreign.compare import Compared
from lockstep.runtime.foreign.readers import open_checkpoint
from lockstep.runtime.foreign.values import Distance
from lockstep.runtime.foreign.words import Shown, as_json, difference, heading, odd_in, show_lines
from tests.runtime.foreign.samples import training


def test_the_model_is_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    training(tmp_path / "a.pt")
    contents = open_checkpoint(tmp_path / "a.pt")
    lines = list(show_lines(contents, Shown(), odd_in(contents)))
    text = "\n".join(lines)
    assert "model (the weights): 9 tensors, 43 numbers, 176 B, 8 float32, 1 int64" in lines
    assert "module.0.weight" in text and "exp_avg" not in text
    assert "prefix module. in 9 of 9 names" in lines and "best: 0.25" in text
    assert "argparse.Namespace: options of a command line" in text
    short = "\n".join(show_lines(contents, Shown(limit=2), None))
    assert "... and 7 more" in short and "finite" not in short
    picked = "\n".join(show_lines(contents, Shown("0.*"), None))
    assert "module.0.bias" in picked and "module.1.bias" not in picked
    assert "exp_avg_sq" in "\n".join(show_lines(contents, Shown("optimizer.*"), None))


def test_odd_values_are_named(tmp_path: Path) -> None:
    torch.save(
        {"model": {"a": torch.tensor([math.nan, math.inf])}, "callbacks": {"x": torch.tensor(math.inf)}},
        tmp_path / "a.pt",
    )
    contents = open_checkpoint(tmp_path / "a.pt")
    odd = odd_in(contents)
    assert list(odd) == [("model", "a")]
    assert any("not finite: model.a (1 NaN, 1 inf)" in line for line in show_lines(contents, Shown(), odd))
    told = json.loads(json.dumps(as_json(contents, Shown(), odd), allow_nan=False))
    assert told["finite"] is False and told["groups"]["model"][0]["nan"] == 1 and told["runs_code"] == []
    assert heading(contents, "model", contents.groups["model"]).startswith("model (the weights): 1 tensor, 2 numbers")


def test_differences_in_a_line() -> None:
    far = Distance(2, 6, 0.5, 0.125, (1, 0), 1.0, 1.5)
    told = difference(Compared("a", "a", "differs", "", far))
    assert told == "2 of 6 elements, at most 0.5, 0.12 of the norm; first [1, 0] 1 and 1.5"
    assert difference(Compared("a", None, "only left", "[2] float32")) == "only in the first ([2] float32)"
    assert difference(Compared(None, "a", "only right", "[2] float32")) == "only in the second ([2] float32)"
    assert difference(Compared("a", "a", "shape", "[2] -> [3]")) == "shape [2] -> [3]"
    assert difference(Compared("a", "a", "dtype", "float32 -> bfloat16")) == "float32 -> bfloat16; same values"
