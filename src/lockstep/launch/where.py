"""Who takes part in a launch: what the user says, else the environment, else the scheduler."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from lockstep.core.errors import UserError, explain
from lockstep.core.wish import Wish
from lockstep.launch.clusters.kubernetes import nodes_from_kubernetes, ranks_from_kubernetes
from lockstep.launch.clusters.slurm import nodes_from_slurm, ranks_from_slurm, unused_nodes
from lockstep.launch.nodes import Nodes
from lockstep.launch.nodes.meeting import check
from lockstep.launch.say import say

_MASTER = re.compile(r"(?P<host>\[[^\]]+\]|[^:\s]+)(:(?P<port>\d+))?")


def who_takes_part(wish: Wish, environ: Mapping[str, str] | None = None) -> tuple[Nodes, int | None]:
    """The machines, and the ranks of this one.

    The options come first, then NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT, then what Slurm or
    Kubeflow Trainer has set.

    Returns: the machines; the number of ranks here, None for all GPUs (or what a CPU gets).

    Raises:
        UserError: values that are no numbers or do not fit together.
    """
    nodes, nproc = _named(wish, os.environ if environ is None else environ)
    check(nodes)
    return nodes, nproc


def _named(wish: Wish, environ: Mapping[str, str]) -> tuple[Nodes, int | None]:
    nproc = wish.nproc or _number(environ, "NPROC_PER_NODE", least=1)
    num_nodes = wish.num_nodes or _number(environ, "NNODES", least=1)
    if num_nodes is None:
        found = nodes_from_slurm(environ) or nodes_from_kubernetes(environ) or Nodes()
        nproc = nproc or ranks_from_slurm(environ) or ranks_from_kubernetes(environ)
        _refuse_alone(wish, found)
        if found.num_nodes == 1 and (idle := unused_nodes(environ)):
            unused = "1 node of this Slurm job is" if idle == 1 else f"{idle} nodes of this Slurm job are"
            say(f"{unused} not used: start with `srun --ntasks-per-node=1 lockstep ...`.")
        return _patient(found, wish), nproc
    if num_nodes == 1:
        return Nodes(), nproc
    node = wish.node_rank if wish.node_rank is not None else _number(environ, "NODE_RANK")
    if node is None:
        seen, must = f"{num_nodes} nodes, and this one has no number", f"0 to {num_nodes - 1}, another on every machine"
        raise UserError(explain(seen, must, "--node-rank or NODE_RANK", "--node-rank 0 on the machine of --master"))
    host, port = _master(wish, environ)
    return _patient(Nodes(num_nodes, node, host, port), wish), nproc


def _patient(nodes: Nodes, wish: Wish) -> Nodes:
    return nodes if wish.wait_s is None else replace(nodes, wait_s=wish.wait_s)


def _refuse_alone(wish: Wish, found: Nodes) -> None:
    """A node's number without the number of nodes would start N separate trainings."""
    if found.num_nodes == 1 and (wish.node_rank or wish.master):
        said = f"--node-rank {wish.node_rank}" if wish.node_rank else f"--master {wish.master}"
        raise UserError(explain(f"{said} without --nnodes", "the number of machines", next_step="give --nnodes N"))


def _master(wish: Wish, environ: Mapping[str, str]) -> tuple[str, int]:
    text = wish.master if wish.master is not None else environ.get("MASTER_ADDR", "")
    if not text:
        return "", _number(environ, "MASTER_PORT") or 0
    found = _MASTER.fullmatch(text)
    if found is None:
        raise UserError(explain(f"--master {text}", "HOST or HOST:PORT; an IPv6 address in [brackets]"))
    port = int(found["port"]) if found["port"] else 0
    if wish.master is None:
        port = port or _number(environ, "MASTER_PORT") or 0
    return found["host"].strip("[]"), port


def _number(environ: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = environ.get(name)
    if text is None or text in ("", "auto", "gpu"):
        return None
    if not text.isdecimal() or int(text) < least:
        raise UserError(explain(f"{name}={text}", f"a whole number, at least {least}", "environment"))
    return int(text)
