"""What was opened, and what is put together of several files."""

from pathlib import Path

from lockstep.runtime.foreign.contents import Contents, Entry
from lockstep.runtime.foreign.tensor_ref import Storage, TensorRef
from lockstep.runtime.foreign.window import Window


def test_sizes_and_traps() -> None:
    storage = Storage("0", "bfloat16", 6)
    storage.window = Window.of(bytes(12))
    entry = Entry.of(TensorRef(storage, 0, (2, 3), (3, 1), "bfloat16"))
    assert (entry.numel, entry.nbytes) == (6, 12)
    one = Contents(Path("a"), "file", {"": {"w": entry}}, "", {"step": 1}, ["os.system", "argparse.Namespace"])
    assert one.dangerous == ["os.system"]
    other = Contents(Path("b"), "file", {}, None, {"step": 2, "epoch": 3}, ["os.system"], ["note"], damage="cut")
    one.merged({"more": {}}, other)
    assert one.facts == {"step": 1, "epoch": 3} and one.notes == ["note"] and "more" in one.groups
    assert one.damage == "b: cut" and one.origins == ["os.system", "argparse.Namespace"]
