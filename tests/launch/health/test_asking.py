import pytest

from lockstep.core.errors import UserError
from lockstep.core.wish import Wish
from lockstep.launch.health.asking import asked


def test_what_is_wished() -> None:
    found = asked(Wish(nproc=3, num_nodes=2, node_rank=1, master="node-a:29999"))
    assert (found.ranks_per_node, found.nodes.num_nodes, found.nodes.node) == (3, 2, 1)
    assert (found.nodes.host, found.nodes.port) == ("node-a", 29999)
    assert "PATH" in found.environ


def test_nothing_said_is_this_machine() -> None:
    found = asked(Wish())
    assert found.ranks_per_node >= 1
    assert not found.several


def test_options_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="--master"):
        asked(Wish(master="node-a"))
