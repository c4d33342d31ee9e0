"""The report for people."""

from lockstep.core.words import amount, columns
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.result import Result, Split
from lockstep.runtime.scanning.words import name, report

LEAVES = (("image", "float32 tensor", "3 x 4"),)
TRAIN = Split("train", 40, 40, 3, 4_000_000, (90_000, 100_000, 120_000), LEAVES, 2, (60, 0, 40), 25)
VAL = Split("val", None, 9, 0, 0, None, (), 0, None, 0)


def result(*findings: Finding, stopped: str = "") -> Result:
    return Result("mine", (TRAIN, VAL), findings, 2.0, 2, stopped)


def test_the_tables() -> None:
    lines = report(result(), 10).splitlines()
    seen = [" ".join(line.split()) for line in lines]
    assert seen[1] == "train 40 40 3 87.9 KiB / 97.7 KiB / 117 KiB image float32 tensor 3 x 4 (2 different)"
    assert seen[2] == "val stream 9 0 - -"
    assert seen[4:7] == ["class train", "0 60 (60.0 %)", "2 40 (40.0 %)"]
    assert lines[7:9] == ["  ignored in train: 20.0 %", "  never in train: 1"]
    assert lines[-1] == "nothing found: 49 samples in 2.0 s (24 samples/s, 1.91 MiB/s, 2 processes)"


def test_findings_are_cut_and_counted() -> None:
    bad = [Finding("label", "train", index, f"{index}.png", "9") for index in range(5)]
    note = Finding("both", "train", 7, "", "the same as val 1")
    lines = report(result(*bad, note, stopped="interrupted"), 2).splitlines()
    start = lines.index("label outside the classes: 5")
    assert lines[start + 1 : start + 4] == [
        "  train 0, 0.png: 9",
        "  train 1, 1.png: 9",
        "  ... and 3 more (--show N, or --json FILE for all)",
    ]
    assert "note: the same file in training and validation: 1" in lines
    assert lines[-2].startswith("5 found, 1 note: ")
    assert lines[-1] == "NOT COMPLETE: interrupted"


def test_names() -> None:
    assert name(Finding("label", "val", 3, "", "")) == "val 3"
    assert name(Finding("unreadable", "val", 3, "a.jpg, a.png", "a.png is empty")) == "val 3"
    assert name(Finding("unreadable", "val", 3, "a.jpg, a.png", "OSError")) == "val 3, a.jpg, a.png"
    assert name(Finding("stray", "train", None, "a.png", "")) == "train, a.png"
    assert name(Finding("often_empty", "train", None, "", "")) == "train"


def test_amounts_and_columns() -> None:
    assert [amount(number) for number in (0, 999, 1000, 5 * 2**30)] == ["0 B", "999 B", "0.977 KiB", "5 GiB"]
    assert list(columns([("a", "bbb"), ("cc", "d")])) == ["a   bbb", "cc  d"]


def test_long_and_odd_texts_are_cut_and_escaped() -> None:
    leaves = tuple((f"k{i}", "float32 tensor", "3") for i in range(3000))
    split = Split("train", 40, 40, 3, 4_000_000, None, leaves, 1, None, 0)
    bad = Finding("unreadable", "train", 3, "x" * 10_000 + "\x1b[31m", "a \x1b[31m\udc80 b" + "y" * 10_000)
    text = report(Result("mine", (split,), (bad,), 1.0, 1), 10)
    assert "and 2992 more" in text
    assert "\\x1b[31m\\udc80 b" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 1000
