import pytest

from lockstep.core.errors import UserError
from lockstep.launch.clusters.kubernetes import WAIT_S, nodes_from_kubernetes, ranks_from_kubernetes
from lockstep.launch.nodes import Nodes

# What Kubeflow Trainer's torch runtime sets in the second pod of three.
POD = {
    "PET_NNODES": "3",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "4",
    "PET_MASTER_ADDR": "my-run-node-0-0.my-run",
    "PET_MASTER_PORT": "29500",
}


def test_a_pod_of_three() -> None:
    assert nodes_from_kubernetes(POD) == Nodes(3, 1, "my-run-node-0-0.my-run", 29500, WAIT_S)
    assert ranks_from_kubernetes(POD) == 4


@pytest.mark.parametrize("environ", [{}, {**POD, "PET_NNODES": "1"}, {**POD, "PET_NNODES": "1:1"}])
def test_nobody_to_meet(environ: dict[str, str]) -> None:
    assert nodes_from_kubernetes(environ) is None


@pytest.mark.parametrize("text", ["auto", "gpu", "cpu", "", "0"])
def test_ranks_left_to_the_launcher(text: str) -> None:
    assert ranks_from_kubernetes({**POD, "PET_NPROC_PER_NODE": text}) is None
    assert ranks_from_kubernetes({}) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"PET_NNODES": "1:4"}, "PET_NNODES=1:4"),
        ({"PET_NNODES": "0"}, "PET_NNODES=0"),
        ({"PET_NODE_RANK": None}, "PET_NODE_RANK is not set"),
        ({"PET_NODE_RANK": "3"}, "PET_NODE_RANK=3"),
        ({"PET_MASTER_PORT": "a"}, "PET_MASTER_PORT='a'"),
        ({"PET_MASTER_ADDR": None}, "PET_MASTER_ADDR is not set"),
    ],
)
def test_variables_that_cannot_be(changes: dict[str, str | None], said: str) -> None:
    environ = {name: value for name, value in {**POD, **changes}.items() if value is not None}
    with pytest.raises(UserError) as caught:
        nodes_from_kubernetes(environ)
    assert said in str(caught.value)
    assert "torch-distributed" in str(caught.value)
