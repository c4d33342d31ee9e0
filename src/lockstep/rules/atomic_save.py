"""A checkpoint is complete at every moment.

What must hold
    A checkpoint is not overwritten in place: it is written under another name, then moved over the old one.

Why
    `torch.save` empties the file first. A job that is killed while it saves (preempted, out of time, out of memory)
    leaves half a file, and the good one of before is gone.

How it shows
    After a kill, `torch.load` says that the archive is damaged or ends too early. Rare, and then all is lost.

Fix
    `torch.save(state, "last.tmp")`, then `os.replace("last.tmp", "last.pt")`: the move happens at once or not at all.

Example
    twins/atomic_save: `last.pt` is saved again after each epoch.
"""

from collections.abc import Iterable

from lockstep.core.finding import Finding, Law, Severity
from lockstep.rules.evidence import files
from lockstep.trace.events import File
from lockstep.trace.trace import Trace

CODE = "LS307"
LAW = Law.ONCE
NEED = 1
AFTER: tuple[str, ...] = ("LS100", "LS301", "LS303")


def dynamic(trace: Trace) -> Iterable[Finding]:
    """One finding for each line that saves over what it saved before."""
    moved = {(rank.rank, event.path) for rank in trace.ranks for event in rank.of(File) if event.op == "rename"}
    found = []
    for path, touches in files.writes(trace).items():
        saves = [one for one in touches if one.event.op == "save" and (one.rank, path) not in moved]
        again = [one for one in saves if one.event.exists]
        if len(saves) > 1 and again:
            found.append((path, [saves[0], again[-1]]))
    for together in files.by_line(found):
        first, last = together[0][1]
        name = files.named(trace, [path for path, _ in together])
        yield Finding(
            CODE,
            Severity.NOTE,
            f"rank {last.rank} saves over {name}: a job killed meanwhile is left with neither the old nor the new one.",
            "a checkpoint is written under another name, then moved over the old one",
            'save to "NAME.tmp", then `os.replace("NAME.tmp", "NAME")`',
            (last.witness(trace), first.witness(trace)),
        )
