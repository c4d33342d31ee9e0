"""The faults: what is done, how soon it has to end, and what the user has to read."""

from dataclasses import dataclass
from typing import Literal

from tests.launch.faults.programs.deeds import lines_of

Verb = Literal["run", "train"]
BOTH: tuple[Verb, ...] = ("run", "train")

SOON_S = 5.0
"""A rank that is dead or stopped, collectives that do not fit, a rank that left: until all processes are gone."""
STALL_TIMEOUT_S = 7.0
"""`--stall-timeout` of the tests."""
REPORT_S = 5.0
"""A stall is reported within three step times and so many seconds; a step of these trainings takes 20 to 60 ms."""
SLACK_S = 2.0
"""For a machine that does other things besides: reading the stacks, ending the ranks."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    name: of the deed. what: for the page. stall: it is a matter of waiting, so it is reported first and ended later.
    goes_on: it is told of, and the run fails at its end. late: it shows only at the end of the epoch.
    rank: the rank that does it, which the verdict names. words: what the verdict has to say, with `|` between. line:
    the deed whose line has to be named; "=" for its own, "" for none. verbs: where it can happen; why_not: for the
    other. code: of the launcher. fast: part of `make test`.
    """

    name: str
    what: str
    words: str
    stall: bool = False
    rank: int = 1
    line: str = "="
    verbs: tuple[Verb, ...] = BOTH
    code: int = 1
    why_not: str = ""
    goes_on: bool = False
    late: bool = False
    fast: bool = False

    @property
    def places(self) -> list[str]:
        """Each `file.py:12` that may be named; none where there is no line."""
        return lines_of(self.name if self.line == "=" else self.line)


FAULTS = (
    Fault("raises", "an exception", "Rank 1 failed first: ValueError: label 12 is outside the 11 classes", fast=True),
    Fault("killed", "SIGKILL", "Rank 1 was killed by SIGKILL|While: ", line="", fast=True),
    Fault(
        "out_of_memory",
        "more memory than its control group has",
        "Rank 1 was killed by SIGKILL: by the kernel's",
        line="",
    ),
    Fault("segfault", "a segmentation fault", "Rank 1 crashed with a segmentation fault (SIGSEGV)"),
    Fault("aborts", "`os.abort()`", "Rank 1 aborted (SIGABRT)"),
    Fault("leaves_with_0", "`os._exit(0)`", "Rank 1 left early: called os._exit(0) before its work was done"),
    Fault("leaves_with_3", "`os._exit(3)`", "Rank 1 called os._exit(3)"),
    Fault("sys_exit_0", "`sys.exit(0)`", "Rank 1 "),
    Fault("stopped", "SIGSTOP", "Rank 1 was stopped (SIGSTOP) and cannot go on", fast=True),
    Fault(
        "reduces_alone",
        "a collective under `if rank == 0`",
        "Rank 0 called another collective than the other ranks|all_reduce of float32[1]|of the gradients of step",
        rank=0,
        fast=True,
    ),
    Fault(
        "calls_another",
        "broadcast where the others call all_reduce",
        "Rank 1 called another collective than the other ranks|broadcast of float32[4]|called all_reduce of float32[4]",
    ),
    Fault(
        "other_size",
        "all_reduce of another size",
        "Rank 1 called another collective than the other ranks|all_reduce of float32[5]|all_reduce of float32[4]",
    ),
    Fault(
        "breaks",
        "`break`: it leaves the loop early",
        "Rank 1 left early|of the gradients of step 20",
        line="backward",
        verbs=("run",),
        why_not="the loop is Lockstep's",
    ),
    Fault(
        "breaks_to_a_barrier",
        "`break`, and a collective after the loop",
        "Rank 1 called another collective than the other ranks|barrier|of the gradients of step 20",
        line="barrier",
        verbs=("run",),
        why_not="the loop is Lockstep's",
    ),
    Fault(
        "swallows",
        "an exception swallowed, a batch passed over (seen at the end of the epoch)",
        "Rank 1 left early|of the gradients of step",
        line="backward",
        verbs=("run",),
        why_not="Lockstep's loop swallows none",
        late=True,
    ),
    Fault(
        "skips_a_step",
        "an exception swallowed after backward (the run goes on)",
        "not what it claims to be|Rank 1 passed over a step|of the gradients of step",
        line="backward",
        verbs=("run",),
        why_not="Lockstep's loop swallows none",
        goes_on=True,
    ),
    Fault(
        "unequal",
        "fewer batches on one rank",
        "Rank 1 left early|of the gradients of step",
        line="backward",
        verbs=("run",),
        why_not="see the next row",
    ),
    Fault(
        "other_data",
        "a smaller data set on one rank",
        "the training set has 4000 samples on rank 0|3990 samples on rank 1",
        line="",
        verbs=("train",),
        code=2,
        why_not="see the row before",
    ),
    Fault(
        "worker_killed",
        "a DataLoader worker gets SIGKILL",
        "Rank 1 failed|DataLoader worker (pid",
        line="",
    ),
    Fault("launcher", "the launcher gets SIGKILL", "", line="", code=-9),
    Fault("spins", "an endless loop in Python", "Rank 1 does not advance since", stall=True, fast=True),
    Fault("holds_the_gil", "a call into C that keeps Python's lock", "Rank 1 does not advance since", stall=True),
    Fault(
        "waits_for_a_lock",
        "a lock that is never released",
        "Rank 1 does not advance since|waits for a lock",
        stall=True,
    ),
    Fault(
        "worker_waits",
        "a deadlock in a DataLoader worker",
        "Rank 1 does not advance since|waiting for the next batch|worker 0 |waits for a lock",
        stall=True,
    ),
    Fault(
        "evaluates_for_ever",
        "an evaluation that never ends",
        "Rank 1 does not advance since|evaluation",
        stall=True,
    ),
)
