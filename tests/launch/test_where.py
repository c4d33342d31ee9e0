"""Who takes part: options before variables before the scheduler."""

import pytest

from lockstep.core.errors import UserError
from lockstep.core.wish import Wish
from lockstep.launch.nodes import Nodes
from lockstep.launch.where import who_takes_part

SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "1",
}
KUBERNETES = {
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29500",
    "PET_NPROC_PER_NODE": "4",
}
TORCHRUN = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "gpu-a", "MASTER_PORT": "4711", "NPROC_PER_NODE": "8"}


def test_one_machine_where_nothing_is_said() -> None:
    assert who_takes_part(Wish(), {}) == (Nodes(), None)
    assert who_takes_part(Wish(nproc=3), {}) == (Nodes(), 3)
    # Left over from another tool: without a number of nodes it says nothing.
    assert who_takes_part(Wish(), {"MASTER_ADDR": "gpu-a", "MASTER_PORT": "1"}) == (Nodes(), None)


def test_options() -> None:
    wish = Wish(nproc=4, num_nodes=2, node_rank=1, master="gpu-a:5000", wait_s=9)
    assert who_takes_part(wish, {}) == (Nodes(2, 1, "gpu-a", 5000, 9), 4)
    assert who_takes_part(Wish(num_nodes=2, node_rank=0), {})[0] == Nodes(2, 0)
    assert who_takes_part(Wish(num_nodes=2, node_rank=0, master="[fe80::1]:77"), {})[0] == Nodes(2, 0, "fe80::1", 77)
    assert who_takes_part(Wish(num_nodes=1, node_rank=0, master="gpu-a"), {})[0] == Nodes()


def test_variables() -> None:
    assert who_takes_part(Wish(), TORCHRUN) == (Nodes(2, 1, "gpu-a", 4711), 8)
    assert who_takes_part(Wish(), {**TORCHRUN, "NPROC_PER_NODE": "auto"})[1] is None
    assert who_takes_part(Wish(), {**TORCHRUN, "MASTER_ADDR": "gpu-a:1"})[0] == Nodes(2, 1, "gpu-a", 1)
    wish = Wish(nproc=1, num_nodes=3, node_rank=2, master="gpu-b")
    assert who_takes_part(wish, TORCHRUN) == (Nodes(3, 2, "gpu-b", 0), 1)


def test_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.launch.clusters.slurm.socket.getaddrinfo", lambda *_: [])
    nodes, ranks = who_takes_part(Wish(), {**SLURM, "CUDA_VISIBLE_DEVICES": "0,1,2"})
    assert (nodes.num_nodes, nodes.node, nodes.host, ranks) == (2, 1, "n1", 3)
    nodes, ranks = who_takes_part(Wish(wait_s=5), KUBERNETES)
    assert (nodes.num_nodes, nodes.node, nodes.port, nodes.wait_s, ranks) == (3, 2, 29500, 5, 4)
    # What the user says counts, not what the scheduler says.
    assert who_takes_part(Wish(num_nodes=1), KUBERNETES)[0] == Nodes()


@pytest.mark.parametrize(
    ("wish", "environ", "must"),
    [
        (Wish(num_nodes=2), {}, "2 nodes, and this one has no number"),
        (Wish(num_nodes=2, node_rank=0, master="a b"), {}, "--master a b"),
        (Wish(num_nodes=2, node_rank=0, master="a:b"), {}, "HOST or HOST:PORT"),
        (Wish(node_rank=1), {}, "--node-rank 1 without --nnodes"),
        (Wish(master="gpu-a"), {}, "--master gpu-a without --nnodes"),
        (Wish(), {"NNODES": "two"}, "NNODES=two"),
        (Wish(), {"NPROC_PER_NODE": "0"}, "NPROC_PER_NODE=0"),
        (Wish(), {**TORCHRUN, "MASTER_PORT": "http"}, "MASTER_PORT=http"),
    ],
)
def test_what_does_not_fit(wish: Wish, environ: dict[str, str], must: str) -> None:
    with pytest.raises(UserError, match=must):
        who_takes_part(wish, environ)
