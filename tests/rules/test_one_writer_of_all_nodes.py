"""LS303: the first rank of each node writes what one rank of all should."""

from lockstep.rules import one_preparer, one_writer, one_writer_of_all_nodes
from tests.rules.by_hand import barrier, file, steps, trace

SAVES, TRAINS = [*steps(), file("save")], steps()


def test_the_first_ranks_of_two_nodes() -> None:
    run = trace(SAVES, TRAINS, SAVES, TRAINS, ranks_per_node=2)
    (finding,) = one_writer_of_all_nodes.dynamic(run)
    assert "ranks 0 and 2, the first of 2 nodes of 2 ranks each" in finding.seen
    assert not list(one_writer.dynamic(run))


def test_all_ranks_of_two_nodes_are_another_rules() -> None:
    run = trace(SAVES, SAVES, SAVES, SAVES, ranks_per_node=2)
    assert not list(one_writer_of_all_nodes.dynamic(run))
    assert list(one_writer.dynamic(run))


def test_one_node_shows_nothing() -> None:
    assert not list(one_writer_of_all_nodes.dynamic(trace(SAVES, SAVES)))


def test_each_node_may_prepare_its_own_data() -> None:
    makes = [file("write", "data.npy"), barrier(), file("read", "data.npy")]
    reads = [barrier(), file("read", "data.npy")]
    run = trace(makes, reads, makes, reads, ranks_per_node=2)
    assert not list(one_writer_of_all_nodes.dynamic(run))
    assert not list(one_preparer.dynamic(run))
