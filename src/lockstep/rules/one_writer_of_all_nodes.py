"""One rank of all nodes writes a file, not one rank of each.

What must hold
    A file on a shared disk is written by one rank of the whole run.

Why
    `LOCAL_RANK == 0` is true once on every node. On one node it is the same as `rank == 0`, so that nobody notices; on
    two nodes two ranks write the same path.

How it shows
    Right on one node. On several, checkpoints are damaged now and then, and logs hold each line once a node.

Fix
    Ask for the rank among all (`dist.get_rank() == 0`, or the variable RANK), where the disk is shared. Files that each
    node needs for itself, as a copy of the data on its own disk, are prepared by the first rank of each node: those
    are left alone.

Example
    twins/one_writer_of_all_nodes: the model is saved under `if rank_of_node == 0:`.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence import files
from lockstep.trace.trace import Trace

CODE = "LS303"
LAW = Law.ONCE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that writes files on the first rank of several nodes."""
    found = [
        (path, rivals)
        for path, rivals, is_prepared in files.contested(trace)
        if not is_prepared and files.of_each_node(trace, rivals)
    ]
    size = trace.ranks[0].start.ranks_per_node
    each = f"{size} rank{'s' * (size > 1)} each"
    for together in files.by_line(found):
        touches = together[0][1]
        name = files.named(trace, [path for path, _ in together])
        yield Finding(
            CODE,
            Severity.ERROR,
            f"{files.ranks_of(touches)}, the first of {len(touches)} nodes of {each}, all write {name}.",
            "a file on a shared disk is written by one rank of all nodes",
            "ask for the rank among all (`dist.get_rank() == 0`), not for LOCAL_RANK",
            tuple(touch.witness(trace) for touch in touches),
        )
