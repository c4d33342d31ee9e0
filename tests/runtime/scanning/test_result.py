"""What a scan came to, as values."""

import json

import numpy as np

from lockstep.runtime.scanning.build import Build
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.gather import Seen, Table
from lockstep.runtime.scanning.result import Result, split_of

BUILD = Build((("image", "float32 tensor"), ("label", "int")), ((3, 4), None))
FINDINGS = (
    Finding("nonfinite", "train", 1, "b.png", "NaN"),
    Finding("label", "train", 1, "b.png", "9"),
    Finding("stray", "train", None, "x.png", "no image"),
    Finding("twice", "train", 2, "a.png", "the same as train 0"),
)


def test_a_split_in_numbers() -> None:
    seen = Seen("train", done=4, counts=np.array([2, 1]), ignored=5)
    table = Table(
        np.array([0, 1, 2]), np.array([0, 0, 0], np.int32), np.array([30, 10, 20]), np.array([], np.uint64), [BUILD]
    )
    split = split_of(seen, table, BUILD, 4, FINDINGS)
    assert (split.read, split.bad, split.num_bytes, split.sizes, split.builds) == (4, 1, 60, (10, 20, 30), 1)
    assert split.usual == (("image", "float32 tensor", "3 x 4"), ("label", "int", "without a shape"))
    nothing = split_of(Seen("val"), Seen("val").table(), None, None, FINDINGS)
    assert (nothing.sizes, nothing.usual, nothing.counts) == (None, (), None)


def test_values_for_json() -> None:
    split = split_of(Seen("train", done=4), Seen("train").table(), None, 4, FINDINGS)
    values = json.loads(json.dumps(Result("mine", (split,), FINDINGS, 2.0, 3).values(), allow_nan=False))
    assert (values["format"], values["complete"], values["found"], values["notes"]) == (1, True, 3, 1)
    assert values["kinds"] == {"nonfinite": 1, "label": 1, "stray": 1, "twice": 1}
    assert values["findings"][2] == {
        "kind": "stray",
        "note": False,
        "split": "train",
        "index": None,
        "files": "x.png",
        "text": "no image",
    }
    assert (values["splits"][0]["samples"], values["samples_per_s"]) == (4, 2.0)
    assert Result("mine", (), (), 1.0, 1, "interrupted").values()["complete"] is False
