"""How a team keeps its own training proven: a test that fails when the script stops being the same on two ranks.

Put it beside the script, with arguments that make a run take seconds.
"""

from pathlib import Path

import lockstep

SCRIPT = Path(__file__).with_name("train_both_ways.py")


def test_two_ranks_are_the_same_training() -> None:
    """The ladder holds from its first rung to its last."""
    proof = lockstep.verify(SCRIPT, ["--epochs", "2"], cwd=SCRIPT.parent)
    assert proof.exit == 0, proof.broken
