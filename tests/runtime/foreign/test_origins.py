"""Foreign names are told in words, traps first."""

from lockstep.runtime.foreign.origins import told, traps


def test_kinds_are_put_together_and_traps_come_first() -> None:
    names = ["numpy.dtype", "argparse.Namespace", "os.system", "numpy.ndarray", "a.B", "a.C", "a.D", "a.E"]
    lines = told(names)
    assert traps(names) == ["os.system"] and lines[0].startswith("os.system: RUNS CODE")
    assert "numpy.dtype, numpy.ndarray: numbers of numpy" in lines
    assert "argparse.Namespace: options of a command line" in lines
    assert "a.B, a.C, a.D and 1 more: other objects" in lines
