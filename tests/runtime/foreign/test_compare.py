"""Names are matched, then tensors are compared one by one."""

import torch
from torch import Tensor

from lockstep.runtime.foreign.compare import compare, pair_names
from lockstep.runtime.foreign.contents import Entry


def entries(tensors: dict[str, Tensor]) -> dict[str, Entry]:
    return {
        name: Entry(tuple(value.shape), str(value.dtype).removeprefix("torch."), lambda value=value: value)  # type: ignore[misc]
        for name, value in tensors.items()
    }


def test_names_are_matched_as_they_are_then_without_prefixes() -> None:
    assert pair_names(["a", "b"], ["b", "c"]) == {"b": "b"}
    assert pair_names(["module.a.w", "x"], ["a.w", "x"]) == {"x": "x", "module.a.w": "a.w"}
    assert pair_names(["model.a", "model.b"], ["a", "b"]) == {"model.a": "a", "model.b": "b"}
    assert pair_names(["a", "b"], ["module.net.a", "module.net.b"]) == {"a": "module.net.a", "b": "module.net.b"}
    assert pair_names(["model.a", "model.b"], ["net.a", "net.b"]) == {"model.a": "net.a", "model.b": "net.b"}
    assert pair_names(["module.a", "a"], ["a"]) == {"a": "a"}


def test_every_verdict() -> None:
    base = torch.arange(6.0).reshape(2, 3)
    left = {"same": base, "near": base, "far": base, "type": base, "shape": base, "gone": base, "zero": torch.zeros(1)}
    right = {
        "same": base.clone(),
        "near": base + 1e-4,
        "far": base + 1,
        "type": base.to(torch.bfloat16),
        "shape": base.t(),
        "new": base,
        "zero": -torch.zeros(1),
    }
    found = {one.name: one for one in compare(entries(left), entries(right), 1e-3)}
    assert {name: one.verdict for name, one in found.items()} == {
        "same": "equal",
        "near": "within",
        "far": "differs",
        "type": "dtype",
        "shape": "shape",
        "gone": "only left",
        "new": "only right",
        "zero": "within",
    }
    assert found["type"].detail == "float32 -> bfloat16" and found["shape"].detail == "[2, 3] -> [3, 2]"


def test_one_pair_is_in_memory_at_a_time() -> None:
    alive, most = [0], [0]

    class Held(torch.Tensor):
        pass

    def load() -> Tensor:
        import weakref

        tensor = torch.zeros(4)
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        weakref.finalize(tensor, lambda: alive.__setitem__(0, alive[0] - 1))
        return tensor

    many = {str(i): Entry((4,), "float32", load) for i in range(20)}
    assert all(one.verdict == "equal" for one in compare(many, many))
    assert most[0] <= 4
