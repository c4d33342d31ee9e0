"""One rank prepares the data, the others wait.

What must hold
    Files that are made before the training and then read (a download, an unpacked archive, a cache of preprocessed
    data) are written by one rank of each node, while the others wait.

Why
    All ranks find the file missing at the same moment and all begin to make it. One reads what another has written
    halfway, or has just emptied to write it again.

How it shows
    The first start on a new machine fails with a damaged archive, an unexpected end of file, or a wrong checksum; the
    second works, since the file is there by then.

Fix
    Let the first rank do it and the others wait: `if rank == 0: prepare()`, then `dist.barrier()`, then read on all
    ranks. With disks that nodes do not share, the first rank of each node (LOCAL_RANK 0) prepares its own.

Example
    twins/one_preparer: every rank writes `samples.npy` and reads it back.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence import files
from lockstep.trace.trace import Trace

CODE = "LS304"
LAW = Law.ONCE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that prepares files on several ranks at once."""
    found = [
        (path, rivals)
        for path, rivals, is_prepared in files.contested(trace)
        if is_prepared and not files.of_each_node(trace, rivals) and not all(one.event.op == "rename" for one in rivals)
    ]
    for together in files.by_line(found):
        touches = together[0][1]
        name = files.named(trace, [path for path, _ in together])
        yield Finding(
            CODE,
            Severity.ERROR,
            f"{files.ranks_of(touches)} all prepare {name} before the training, with nothing that orders them.",
            "files that are made before the training are made by one rank of each node, while the others wait",
            "prepare them under `if rank == 0:`, then `dist.barrier()`, then read them on all ranks",
            tuple(touch.witness(trace) for touch in touches),
        )
