"""Inside a Slurm job step: which nodes take part, where they meet, how many ranks each starts.

Only the variables of the step are read. Those of the job (SLURM_NNODES, SLURM_NTASKS, SLURM_JOB_NODELIST) speak of
nodes that a smaller step does not have, and ranks that never come are waited for.
"""

import itertools
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping

from lockstep.core.errors import UserError, explain
from lockstep.launch.nodes import Nodes

PORTS = range(20000, 30000)
"""Node 0 listens on one of these, derived from the job's and the step's number; below the range that systems choose
free ports from, above Slurm's own."""
_INTERACTIVE_STEP = "4294967290"
_LOOK_UP_S = 10.0


def node_address(name: str) -> str:
    """The node's name where it resolves here, else the address by which Slurm itself reaches it."""
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        try:
            command = ["scontrol", "--oneliner", "show", "node", name]
            said = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_UP_S, check=False).stdout
        except (OSError, subprocess.SubprocessError):
            return name
        found = re.search(r"\bNodeAddr=(\S+)", said)
        return found[1] if found else name
    return name


def nodes_from_slurm(environ: Mapping[str, str], address: Callable[[str], str] = node_address) -> Nodes | None:
    """The nodes of the job step that this launcher is a task of.

    Args:
        environ: the environment.
        address: how a node's name becomes what the other nodes can connect to.

    Returns: None outside a job step and in a step of one node, where nobody has to be met.

    Raises:
        UserError: the step has not exactly one task, so one launcher, on each node; or its variables contradict.
    """
    if "SLURM_STEP_NODELIST" not in environ or environ.get("SLURM_STEP_ID") == _INTERACTIVE_STEP:
        return None
    num_nodes, num_tasks = _number(environ, "SLURM_STEP_NUM_NODES"), _number(environ, "SLURM_STEP_NUM_TASKS")
    if num_tasks != num_nodes:
        raise UserError(
            explain(
                f"this Slurm step has {num_tasks} tasks on {num_nodes} node{'s' * (num_nodes != 1)}",
                "one launcher on each node: it starts the ranks of its node itself",
                "SLURM_STEP_NUM_TASKS, SLURM_STEP_NUM_NODES",
                "srun --ntasks-per-node=1 lockstep ..., and ranks by --gpus-per-node or --nproc",
            )
        )
    if num_nodes == 1:
        return None
    names = hosts(environ["SLURM_STEP_NODELIST"])
    node = _number(environ, "SLURM_NODEID")
    if len(names) != num_nodes or node >= num_nodes:
        seen = f"node {node} of {num_nodes}, but the list of nodes is {environ['SLURM_STEP_NODELIST']}"
        where = "SLURM_NODEID, SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST"
        next_step = "start it with srun, or name the nodes yourself: --nnodes, --node-rank, --master"
        raise UserError(explain(seen, "the variables of one step agree", where, next_step))
    return Nodes(num_nodes, node, address(names[0]), _port(environ))


def ranks_from_slurm(environ: Mapping[str, str]) -> int | None:
    """How many GPUs the step has on this node, which is how many ranks it starts; None where Slurm gave none."""
    if "SLURM_STEP_NODELIST" not in environ:
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # A list of those that this task may use; the node's count may include those of other steps.
        return len([one for one in visible.split(",") if one.strip() not in ("", "-1", "NoDevFiles")]) or None
    count = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(count) or None if count.isdecimal() else None


def unused_nodes(environ: Mapping[str, str]) -> int:
    """How many nodes of the job lie idle because the launcher was started in the batch script itself, without srun."""
    if "SLURM_STEP_NODELIST" in environ or "SLURM_JOB_ID" not in environ:
        return 0
    count = environ.get("SLURM_JOB_NUM_NODES", "")
    return int(count) - 1 if count.isdecimal() and int(count) > 1 else 0


def hosts(text: str) -> list[str]:
    """The names of a list in Slurm's notation, in its order: `a[01-03,7],b` is a01, a02, a03, a7, b.

    Raises:
        UserError: where it is no such list.
    """
    return [name for item in _split(text) for name in _expand(item)]


def _split(text: str) -> Iterator[str]:
    """The items between the commas that stand outside brackets."""
    start = depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _expand(item: str) -> Iterator[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", item)
    if not item or any(mark in piece for piece in pieces[::2] for mark in "[]"):
        raise UserError(explain(f"{item!r} is no list of nodes", "names such as a[01-03,7],b", "SLURM_STEP_NODELIST"))
    choices = [[piece] if at % 2 == 0 else list(_numbers(piece)) for at, piece in enumerate(pieces)]
    return ("".join(parts) for parts in itertools.product(*choices))


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(explain(f"[{text}] is no range of nodes", "such as [01-03,7]", "SLURM_STEP_NODELIST"))
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def _port(environ: Mapping[str, str]) -> int:
    """The same on all nodes, another one for each of a job's steps, and for jobs that follow one another."""
    job, step = _number(environ, "SLURM_JOB_ID"), _number(environ, "SLURM_STEP_ID")
    return PORTS[(16 * job + step) % len(PORTS)]


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdecimal():
        seen = f"{name}={text!r}" if name in environ else f"{name} is not set"
        next_step = "start it with srun, or name the nodes yourself: --nnodes, --node-rank, --master"
        raise UserError(explain(seen, "a number, as srun sets it", next_step=next_step))
    return int(text)
