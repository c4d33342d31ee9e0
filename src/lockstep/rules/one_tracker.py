"""One rank speaks: trackers are started once, and words are printed once.

What must hold
    A tracker (TensorBoard, Weights & Biases, MLflow) is started by one rank, or each rank's is told apart by its
    folder, name or group. What is printed the same on all ranks is printed by one.

Why
    Each rank runs the whole script. N trackers with the same arguments are N runs of one training, each with its own
    share of the numbers; N equal lines hide the one that differs.

How it shows
    N runs appear in the tracker for each start, curves zigzag between them, and the terminal shows each line and each
    progress bar N times.

Fix
    `if rank == 0:` around the tracker and the words (`disable=rank != 0` for tqdm). Keep every reduction outside.

Example
    twins/one_tracker: all ranks print the loss of each epoch.
"""

from collections.abc import Iterable, Iterator, Sequence

from lockstep.core.finding import Finding, Law, Place, Severity, Witness
from lockstep.trace.events import Output
from lockstep.trace.trace import Trace

CODE = "LS305"
LAW = Law.ONCE
NEED = 2
AFTER: tuple[str, ...] = ("LS100",)

_TRACKERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}
_SHOWN = 5


def dynamic(trace: Trace) -> Iterable[Finding]:
    """An error for each line that starts a tracker on all ranks; one note for all words that are the same on all."""
    alike = list(_alike(trace))
    for line in alike:
        if line[0].what in _TRACKERS and "group=" not in line[0].text:
            yield _tracker(trace, line)
    words = [line for line in alike if line[0].what in ("print", "tqdm")]
    if words:
        yield _words(trace, words)


def _alike(trace: Trace) -> Iterator[tuple[Output, ...]]:
    """What every rank said at the same line, the first time it spoke there, in the same words; one event a rank."""
    first = [{(event.what, event.at): event for event in reversed(events)} for events in trace.each(Output)]
    for key, event in first[0].items():
        line = tuple(found for rank in first if (found := rank.get(key)) is not None)
        # A name of the rank in a folder or a line makes them differ: then each rank is meant to speak.
        if len(line) == trace.num_ranks and all(one.text == event.text for one in line) and event.count == 1:
            yield line


def _tracker(trace: Trace, line: Sequence[Output]) -> Finding:
    name = _TRACKERS[line[0].what]
    return Finding(
        CODE,
        Severity.ERROR,
        f"{name} is started by all {trace.num_ranks} ranks with the same arguments ({line[0].text or 'none'}).",
        "a tracker is started by one rank, or each rank's is told apart",
        f"start {name} under `if rank == 0:`, and keep reductions outside of it",
        _witnesses(trace, line),
    )


def _words(trace: Trace, words: Sequence[Sequence[Output]]) -> Finding:
    bars = all(line[0].what == "tqdm" for line in words)
    one = len(words) == 1
    count = "a line of the script" if one else f"{len(words)} lines of the script"
    what = (
        ("makes" if one else "make") + " a progress bar" if bars else ("prints" if one else "print") + " the same words"
    )
    return Finding(
        CODE,
        Severity.NOTE,
        f"{count} {what} on all {trace.num_ranks} ranks, `{words[0][0].text[:60]}` for one.",
        "what is the same on all ranks is printed by one",
        "pass `disable=rank != 0` to tqdm" if bars else "print under `if rank == 0:`",
        tuple(witness for line in words[:_SHOWN] for witness in _witnesses(trace, line)),
    )


def _witnesses(trace: Trace, line: Sequence[Output]) -> tuple[Witness, ...]:
    verb = "starts a tracker" if line[0].what in _TRACKERS else "shows" if line[0].what == "tqdm" else "prints"
    return tuple(
        Witness(f"{verb}: {event.text[:80]}" if event.text else verb, rank.rank, event.step, Place.parse(event.at))
        for rank, event in zip(trace.ranks, line, strict=True)
    )
