"""Two finished runs side by side: a real run on N GPUs against one on a single card."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lockstep.core.digest import file_digest
from lockstep.core.finding import Finding, Severity
from lockstep.core.proof import Cause, Curve, Difference, Proof, Rung, Status
from lockstep.proof.drift import Verdict, drift
from lockstep.proof.finished import Finished, read_run, together
from lockstep.proof.partition import shares
from lockstep.proof.prove import sources
from lockstep.rules.judge import judge
from lockstep.trace.events import Batch, PassEnd
from lockstep.trace.trace import Trace


def compare_runs(first: Path, second: Path, accept: tuple[str, ...] = ()) -> Proof:
    """Compare what two runs have left: nothing is run.

    Args:
        first: the reference, usually of one process: a folder of `lockstep run --record` or of `lockstep train`.
        second: the run that is judged.
        accept: codes of deviations that are declared.

    Raises:
        UserError: one of them holds no run.
    """
    began = time.monotonic()
    one, other = read_run(first), read_run(second)
    rungs = tuple(_rungs(one, other, accept))
    pairs = together(one.losses, other.losses)
    files = {f"{number}: {path.name}": path for number, run in ((1, one), (2, other)) for path in run.files}
    return Proof(
        program=str(second),
        reference=str(first),
        num_ranks=other.num_ranks,
        rungs=rungs,
        accepted=accept,
        curves=(
            Curve(one.told, tuple(pair[1] for pair in pairs)),
            Curve(other.told, tuple(pair[2] for pair in pairs)),
        ),
        shares=shares(other.trace)[:8] if other.trace is not None else (),
        digests={name: file_digest(path) for name, path in files.items()},
        sources=sources(list(rungs)),
        seconds=time.monotonic() - began,
    )


def _rungs(one: Finished, other: Finished, accept: tuple[str, ...]) -> Iterator[Rung]:
    yield _runs(one, other)
    if not one.steps or not other.steps:
        return
    for run in (one, other):
        if run.trace is not None and run.num_ranks > 1:
            yield _rules(run, accept)
    yield _batch(one, other, accept)
    yield _rates(one, other, accept)
    if one.trace is not None and other.trace is not None:
        yield _samples(one.trace, other.trace)
    yield _losses(one, other)


def _runs(one: Finished, other: Finished) -> Rung:
    name, said = "runs", f"{one.told} and {other.told}"
    if not one.steps or not other.steps:
        return Rung(name, Status.ABSTAIN, f"{said}: nothing to compare without optimizer steps")
    if one.steps != other.steps and one.ended and other.ended:
        difference = Difference(min(one.steps, other.steps), "steps", "", None, str(other.steps), str(one.steps))
        cause = Cause("the same epochs are another number of steps", "keep the global batch, and the epochs", "LS408")
        return Rung(name, Status.FAIL, f"{said}: another number of steps", (difference,), (cause,))
    cut = "" if one.ended and other.ended else "; not both came to their ends: their common steps are compared"
    return Rung(name, Status.PASS, said + cut)


def _rules(run: Finished, accept: tuple[str, ...]) -> Rung:
    assert run.trace is not None
    name, findings = f"rules over {run.folder.name}", judge(run.trace)
    serious = [one for one in findings if _is_serious(one, accept)]
    if serious:
        said = f"{len(serious)} finding{'s' * (len(serious) > 1)}; the first: {serious[0].code}, {serious[0].seen}"
        cause = Cause(serious[0].seen, serious[0].next_step, serious[0].code)
        return Rung(name, Status.FAIL, said, causes=(cause,), findings=findings)
    return Rung(name, Status.PASS, f"the rules found nothing against {run.num_ranks} ranks", findings=findings)


def _is_serious(finding: Finding, accept: tuple[str, ...]) -> bool:
    deviation = finding.severity is Severity.DEVIATION and finding.code not in accept
    return finding.severity is Severity.ERROR or deviation


def _batch(one: Finished, other: Finished, accept: tuple[str, ...]) -> Rung:
    name = "global batch"
    if one.batch is None or other.batch is None:
        return Rung(name, Status.ABSTAIN, "the samples of a step are not in the trace: batches come from no DataLoader")
    if one.batch == other.batch:
        return Rung(name, Status.PASS, f"a step takes {one.batch} samples in both")
    said = f"a step takes {other.batch} samples in {other.told}, and {one.batch} in {one.told}"
    if "LS408" in accept:
        return Rung(name, Status.PASS, f"{said}, as declared")
    cause = Cause("the global batch is another one", "divide the batch size by the ranks, or --accept LS408", "LS408")
    return Rung(
        name, Status.FAIL, said, (Difference(0, "batch", "", None, str(other.batch), str(one.batch)),), (cause,)
    )


def _rates(one: Finished, other: Finished, accept: tuple[str, ...]) -> Rung:
    name, common = "learning rate", sorted(one.rates.keys() & other.rates.keys())
    if not common:
        return Rung(name, Status.ABSTAIN, "no learning rate is told for a step of both")
    apart = [step for step in common if abs(one.rates[step] - other.rates[step]) > 1e-6 * abs(one.rates[step])]
    if not apart:
        last = one.rates[common[-1]]
        return Rung(name, Status.PASS, f"the same at {len(common)} steps, {one.rates[common[0]]:.6g} to {last:.6g}")
    step = apart[0]
    said = f"{other.rates[step]:.6g} instead of {one.rates[step]:.6g} in step {step - 1}, the first of {len(apart)}"
    if "LS412" in accept:
        return Rung(name, Status.PASS, f"{said}, as declared")
    texts = f"{other.rates[step]:.6g}", f"{one.rates[step]:.6g}"
    cause = Cause("the learning rate is another one", "keep it, or declare it with --accept LS412", "LS412")
    return Rung(name, Status.FAIL, said, (Difference(step - 1, "lr", "", None, *texts),), (cause,))


def _samples(one: Trace, other: Trace) -> Rung:
    """Whole passes over the training data: which samples, over all ranks."""
    name = "partition"
    first, second = _passes(one), _passes(other)
    common = min(len(first), len(second))
    if not common:
        return Rung(name, Status.ABSTAIN, "not both have read a whole pass over training data with sample indices")
    for number in range(common):
        wanted, seen = set(first[number]), set(second[number])
        padding = sum(second[number].values()) - len(seen)
        missing = len(wanted - seen)
        if missing or padding >= max(other.num_ranks, 1) + sum(first[number].values()) - len(wanted):
            said = (
                f"pass {number}: {sum(second[number].values())} samples over all ranks, of which {padding} are read "
                f"more than once; {missing} of {len(wanted)} are left out"
            )
            cause = Cause("the ranks do not share the data", "use a DistributedSampler, once", "LS201")
            return Rung(name, Status.FAIL, said, causes=(cause,))
    said = f"{common} whole passes: the same {len(set(first[0]))} samples, each once over all ranks but for padding"
    return Rung(name, Status.PASS, said)


def _passes(trace: Trace) -> list[Counter[int]]:
    """Samples of each training pass that all ranks have read to its end, over all ranks."""
    found: dict[tuple[str, int], Counter[int]] = {}
    ended = [{(end.stream, end.number) for end in rank.of(PassEnd)} for rank in trace.ranks]
    for rank in trace.ranks:
        for batch in rank.of(Batch):
            key = batch.stream, batch.number
            if batch.grad and batch.ids is not None and all(key in mine for mine in ended):
                found.setdefault(key, Counter()).update(batch.ids)
    return list(found.values())


def _losses(one: Finished, other: Finished) -> Rung:
    name, pairs = "loss", together(one.losses, other.losses)
    if not pairs:
        said = "no loss of the same steps is told in both (a recording on a GPU tells none)"
        return Rung(name, Status.ABSTAIN, said)
    result = drift(pairs, one.low or other.low, one.num_ranks / other.num_ranks)
    rung = Rung(name, Status.PASS, result.said)
    if result.verdict is Verdict.SAME:
        return rung
    if result.verdict is Verdict.UNCLEAR:
        return replace(rung, status=Status.ABSTAIN)
    next_step = "prove the program itself: lockstep verify SCRIPT --against ORIGINAL, which names the cause"
    cause = Cause("a step was made differently, by more than rounding", next_step)
    return replace(rung, status=Status.FAIL, differences=result.differences, causes=(cause,))
