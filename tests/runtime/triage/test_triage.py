"""The module and line that first made a value that is not finite are named, and looking changes nothing."""

from typing import Any

import pytest

from lockstep.runtime.triage.triage import Told
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.triage.nets import Case, told

SYNC = ("parallel.sync_batchnorm=true",)
FSDP = ("parallel.strategy=fsdp", "parallel.blocks=[block,head]")
FP16 = ("precision=fp16",)

# name -> (case, what must be said, what comes next)
CASES: dict[str, tuple[Case, list[str], str]] = {
    "code in a block": (
        Case("exp"),
        ["ranks 0, 1: first in forward, `exp` in block (Block) makes inf (float32)", "torch.exp(h * 1e4)"],
        "lower optim.lr",
    ),
    "code in a block of one rank": (
        Case("exp", only=1),
        ["rank 1: first in forward, `exp` in block (Block) makes inf", "nets.py:"],
        "",
    ),
    "a row that is masked": (
        Case("masked"),
        ["first in forward, `softmax` in block (Block) makes nan (float32) of -inf"],
        "",
    ),
    "assigned to a part": (Case("in place"), ["first in forward, `log` in block (Block) makes nan"], ""),
    "in the loss": (Case("loss"), ["first in forward, `log` in the loss makes -inf", "torch.log(each * 0)"], ""),
    "backward of the model's own code": (
        Case("root"),
        ["forward is finite; in backward, `sqrt` in the model itself (Net) first makes", "torch.sqrt(h.relu() * 0)"],
        "",
    ),
    "backward of a function of the user's": (
        Case("own function"),
        ["in backward, `twice` in block (Block) first makes inf"],
        "",
    ),
    "second micro-batch": (
        Case("large", micro=2, only=1),
        ["rank 1, micro-batch 1: first in forward, `square` in the loss makes inf"],
        "",
    ),
    "nan in a sample": (Case("data", nan_in="x", only=1), ["rank 1: the batch: x holds nan"], "mend these samples"),
    "nan in the second micro-batch": (Case("data", nan_in="y", micro=2), ["the batch: y holds nan"], "lockstep scan"),
    "overflow in fp16": (
        Case("overflow", FP16),
        [
            "ranks 0, 1: first in forward, `linear` in block.inner (Linear) makes -inf/inf (float16) of finite numbers",
            "loss scale of step 1: 16",
            "tried: with block.inner",
            "in float32 the step is finite",
        ],
        "precision.fp32_modules=[block.inner",
    ),
    "overflow in fp16 of one rank": (Case("exp", FP16, only=1), ["rank 1: first in forward, `exp`", "not finite"], ""),
    "overflow in fp16, synchronised": (Case("overflow", FP16 + SYNC), ["block.inner (Linear) makes"], "fp32_modules=["),
    "synchronised, one rank": (Case("exp", SYNC, only=0), ["rank 0: first in forward, `exp` in block (Block)"], ""),
    "it cannot be run again": (Case("raises", nan_in="x", only=0), ["rank 0: the step could not be run again"], ""),
    "the scale is too large": (
        Case("large scale", FP16),
        ["forward is finite; in backward", "(float16)", "with a loss scale of 1 the step is finite"],
        "halves the loss scale",
    ),
    "sharded": (Case("exp", FSDP), ["ranks 0, 1: first in forward, `exp` in block (Block) makes inf"], ""),
    "sharded, one rank": (Case("own function", FSDP, only=1), ["rank 1: forward is finite; in backward, `twice`"], ""),
    "sharded, recomputed": (
        Case("exp", (*FSDP, "memory.activation_checkpointing=true"), only=0),
        ["rank 0: first in forward, `exp` in block (Block) makes inf"],
        "",
    ),
    "recomputed": (
        Case("own function", ("parallel.blocks=[block]", "memory.activation_checkpointing=true")),
        ["forward is finite; in backward, `twice` in block (Block) first makes inf"],
        "",
    ),
    "sharded, overflow": (
        Case("overflow", ("precision=fp16", *FSDP)),
        ["`linear` in block.inner (Linear) makes", "the step is finite"],
        "precision.fp32_modules=[block.inner",
    ),
}


def all_cases() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        return {name: told(world, case) for name, (case, *_) in CASES.items()}


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, tuple[Told, list[str], bool]]]:
    return run_ranks(all_cases, 2)


@pytest.mark.parametrize("name", CASES)
def test_the_first_place_is_named_and_nothing_is_changed(ranks: list[Any], name: str) -> None:
    (said, changed, left_out), (other, changed_too, _) = ranks[0][name], ranks[1][name]
    assert left_out, "the case is to make the step not finite"
    assert changed == changed_too == []
    assert said == other
    text, (_, expected, next_step) = "\n".join(said.lines), CASES[name]
    for part in expected:
        assert part in text
    assert next_step in said.next_step
    if "fp32_modules" not in next_step:
        assert "fp32_modules" not in said.next_step


def test_one_process_needs_no_launcher() -> None:
    with World.enter(threads=1) as world:
        said, changed, left_out = told(world, Case("exp"))
    assert left_out
    assert changed == []
    assert "rank 0: first in forward, `exp` in block (Block)" in said.lines[0]
