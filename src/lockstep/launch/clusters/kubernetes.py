"""Inside a pod of Kubeflow Trainer's torch runtime: which pods take part, where they meet, how many ranks each starts.

The runtime says it in torchrun's own variables: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT,
PET_NPROC_PER_NODE.
"""

from collections.abc import Mapping

from lockstep.core.errors import UserError, explain
from lockstep.launch.nodes import Nodes

WAIT_S = 900.0
"""How long a pod waits for the others: they start minutes apart where one still fetches its image."""


def nodes_from_kubernetes(environ: Mapping[str, str]) -> Nodes | None:
    """The pods of the TrainJob that this launcher runs in.

    Returns: None outside of one, and in a job of one pod.

    Raises:
        UserError: variables that are missing, no numbers, or contradict one another.
    """
    count = environ.get("PET_NNODES")
    if count is None or count in ("1", "1:1"):
        return None
    if not count.isdecimal() or int(count) < 1:
        seen = f"PET_NNODES={count}"
        raise UserError(explain(seen, "one number of nodes: an elastic range cannot be kept in step", next_step=_NEXT))
    num_nodes, node = int(count), _number(environ, "PET_NODE_RANK")
    host, port = environ.get("PET_MASTER_ADDR", ""), _number(environ, "PET_MASTER_PORT")
    if not host:
        raise UserError(explain("PET_MASTER_ADDR is not set", "the address of pod 0", next_step=_NEXT))
    if node >= num_nodes:
        seen = f"PET_NODE_RANK={node} with PET_NNODES={num_nodes}"
        raise UserError(explain(seen, "nodes are counted from 0", next_step=_NEXT))
    return Nodes(num_nodes, node, host, port, WAIT_S)


def ranks_from_kubernetes(environ: Mapping[str, str]) -> int | None:
    """How many ranks this pod starts; None where the job leaves it to the launcher (`auto`, `gpu`)."""
    text = environ.get("PET_NPROC_PER_NODE", "")
    return int(text) or None if text.isdecimal() else None


_NEXT = "use the runtime torch-distributed, or name the nodes yourself: --nnodes, --node-rank, --master"


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdecimal():
        seen = f"{name}={text!r}" if name in environ else f"{name} is not set"
        raise UserError(explain(seen, "a number, as Kubeflow Trainer's torch runtime sets it", next_step=_NEXT))
    return int(text)
