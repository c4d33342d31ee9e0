"""One rank writes a file.

What must hold
    A file that the training leaves behind (a checkpoint, a log, a table) is written by one rank, or each rank writes a
    file of its own, or the ranks take turns with a collective between them.

Why
    Every rank runs the same script. Without a condition all of them open the same path at the same moment, and the
    bytes of one land among those of another.

How it shows
    Mostly nothing is seen, since the ranks write equal bytes at nearly the same time. Now and then a checkpoint cannot
    be loaded, is the state of another rank, or a log has each line N times.

Fix
    Write under `if rank == 0:`, with the collectives (reductions, barriers) outside of it. Where others read the file
    afterwards, put `dist.barrier()` behind it.

Example
    twins/one_writer: `torch.save(net.state_dict(), "model.pt")` runs on every rank.
"""

from collections.abc import Iterable, Sequence

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence import files
from lockstep.trace.trace import Trace

CODE = "LS301"
LAW = Law.ONCE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that writes files which several ranks write at once."""
    found = [
        (path, rivals)
        for path, rivals, is_prepared in files.contested(trace)
        if not is_prepared and not files.of_each_node(trace, rivals)
    ]
    for together in files.by_line(found):
        yield _finding(trace, [path for path, _ in together], together[0][1])


def _finding(trace: Trace, paths: Sequence[str], touches: Sequence[files.Touch]) -> Finding:
    added = all(touch.event.append for touch in touches)
    apart = max(touch.event.time for touch in touches) - min(touch.event.time for touch in touches)
    how = "add to" if added else "write"
    return Finding(
        CODE,
        Severity.NOTE if added else Severity.ERROR,
        f"{files.ranks_of(touches)} {how} {files.named(trace, paths)}, {apart:.2f} s apart, and nothing orders them.",
        "a file is written by one rank, or each rank has its own",
        "write it under `if rank == 0:`, and keep collectives outside of that condition",
        tuple(touch.witness(trace) for touch in touches),
    )
