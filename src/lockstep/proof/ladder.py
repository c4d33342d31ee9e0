"""The ladder: one new variable a rung, the first broken one named."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite

from lockstep.core.finding import Finding, Severity, Witness
from lockstep.core.proof import Cause, Rung, Status
from lockstep.core.report.words import count
from lockstep.proof import causes, mirror, shard
from lockstep.proof.align import views
from lockstep.proof.fault import fault
from lockstep.proof.partition import made_anew, partition
from lockstep.proof.question import Stage
from lockstep.proof.resume import resume
from lockstep.proof.same_data import other_data
from lockstep.proof.takes import Take
from lockstep.rules.judge import judge
from lockstep.trace.events import File, Forward, Loader, Scaler, Trouble

Climb = Callable[[Stage], Rung | None]


def climb(stage: Stage) -> Iterator[Rung]:
    """The rungs in order, until one breaks; all of them if that was asked. One that does not apply is left out."""
    question = stage.question
    rungs: tuple[Climb, ...] = (
        _one_process,
        _distributed_path,
        _two_processes,
        _partition,
        _mirror,
        _shard,
        _mixed_precision,
        resume,
        fault,
    )
    for rung in rungs:
        began = time.monotonic()
        result = rung(stage)
        if result is None:
            continue
        result = replace(result, seconds=time.monotonic() - began)
        yield result
        broken = result.status in (Status.FAIL, Status.ERROR)
        if broken and (not question.all_rungs or result.status is Status.ERROR):
            return
        if result.name == "one process" and result.status is Status.ABSTAIN:
            return  # nothing was trained, so there is nothing to compare


def _did_not_run(name: str, take: Take) -> Rung:
    explained = next((one.message for one in take.outcome.failures if one.kind == "user"), "")
    said = f"{take.problem}."
    last = [line for line in "".join(take.output).splitlines() if line.strip()]
    if last and not take.cut and not explained:
        said += f" It said last: {last[-1].strip()[:200]}"
    place = f" (at {take.at})" if take.at else ""
    next_step = {
        "time": "give a longer --timeout, or fewer epochs behind `--`",
        "stuck": "see what that line waits for: input, a lock, a collective that other ranks do not join; "
        "if it only works long, give a longer --timeout",
        "disk": "let it write less behind `--`",
    }.get(take.cut, explained.partition("  Next: ")[2] or "run it by hand with the same arguments and mend it")
    if not take.cut and any(word in take.problem.lower() for word in ("cuda", "nvidia", "nccl")):
        next_step = "the proof runs on CPUs: let the program use one where torch.cuda.is_available() is false"
    return Rung(name, Status.ERROR, said, causes=(Cause(f"{take.problem}{place}", next_step),))


def _one_process(stage: Stage) -> Rung:
    name = "one process"
    take = stage.reference()
    if _wants_variables(take) and stage.question.reference is None:
        take = stage.retry_reference()
    if take.problem and not _enough(take, stage):
        return _did_not_run(name, take)
    if take.trace.num_ranks > 1:
        said = f"the original started {take.trace.num_ranks} ranks: give it arguments for one (--against-args)"
        return Rung(name, Status.ERROR, said)
    steps = views(take.trace.ranks[0]) if take.trace.ranks else []
    if not steps:
        said = "the program never calls the step of a torch optimizer, so there is no training to compare"
        return Rung(name, Status.ABSTAIN, said)
    norms = [view.step.norm for view in steps if view.step.norm is not None]
    if norms and not any(norm > 0 and isfinite(norm) for norm in norms):
        said = "every gradient of the original is zero or not finite: equal results would show nothing"
        return Rung(name, Status.ABSTAIN, said)
    with_variables = ", with torchrun's variables, which it needs" if stage.needs_variables else ""
    return Rung(
        name, Status.PASS, f"the original trains as one process{with_variables}; {count(len(steps), 'step')} recorded"
    )


def _wants_variables(take: Take) -> bool:
    words = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "env://", "process group has not been initialized")
    return any(word in take.problem for word in words)


def _enough(take: Take, stage: Stage) -> bool:
    """A run that was cut by time has still shown what can be compared."""
    steps = stage.question.settings.steps
    return take.cut == "time" and bool(take.trace.ranks) and len(views(take.trace.ranks[0])) >= steps


def _distributed_path(stage: Stage) -> Rung | None:
    name = "distributed path"
    if stage.question.settings.spawns:
        return None  # how many ranks it starts is its own affair
    if stage.needs_variables:
        return Rung(name, Status.PASS, "the original is the distributed path with one rank already")
    take = stage.alone()
    if take.problem:
        return _did_not_run(name, take)
    result = mirror.compare(stage.reference(), take)
    if result.exact:
        said = f"one rank under torchrun equals it bit for bit over {count(result.steps, 'step')}"
        return Rung(name, Status.PASS, said)
    if _differs_by_declaration(result, stage):
        return Rung(name, Status.ABSTAIN, "another rate or batch is declared: judged on slices", covered=True)
    if _other_schedule(result, stage.reference(), take):
        said = (
            "with one rank its loaders are longer or shorter than the original's, and its learning rates follow them: "
            f"judged on {stage.num_ranks} ranks"
        )
        return Rung(name, Status.ABSTAIN, said, covered=True)
    said = f"one rank under torchrun does not equal it: they differ first at step {_first(result)}"
    return Rung(name, Status.FAIL, said, result.differences, causes.of_mirror(stage, take, result, alone=True))


def _first(result: mirror.Mirrored | shard.Sharded) -> int:
    return result.differences[0].step if result.differences else 0


def _differs_by_declaration(result: mirror.Mirrored, stage: Stage) -> bool:
    kinds, accepted = {one.what for one in result.differences}, stage.question.accept
    other_rates = bool(kinds) and kinds <= {"lr", "parameter"}
    return ("LS412" in accepted and other_rates) or ("LS408" in accepted and kinds == {"step"})


def _other_schedule(result: mirror.Mirrored, reference: Take, take: Take) -> bool:
    """Whether only rates differ, and the batch size is a rank's: one rank then has more batches than the original, and
    a schedule as long as its loader is another one."""
    one, other = (
        {event.stream: event.batches for event in side.trace.ranks[0].of(Loader)} for side in (reference, take)
    )
    same = all(one[stream] == other[stream] for stream in one.keys() & other.keys())
    return not same and {difference.what for difference in result.differences} <= {"lr", "parameter"}


def _two_processes(stage: Stage) -> Rung:
    name = f"{stage.num_ranks} processes"
    take = stage.plain()
    ranks = take.trace.num_ranks
    if stage.question.settings.spawns and ranks != stage.num_ranks and not take.problem:
        said = f"the program started {ranks} rank{'s' * (ranks != 1)}, and {stage.num_ranks} were asked about (--nproc)"
        return Rung(name, Status.ERROR, said)
    findings = judged(stage)
    others = tuple(one for one in findings if not one.code.startswith("LS2"))
    serious = stage.question.serious(others)
    if serious:
        worst = serious[0]
        said = f"{len(serious)} finding{'s' * (len(serious) > 1)}; the first: {worst.code}, {worst.seen}"
        if take.problem and not take.cut:
            said += f" The run broke off: {take.problem}"
        return Rung(name, Status.FAIL, said, findings=others)
    steps = min((len(views(rank)) for rank in take.trace.ranks), default=0)
    if take.problem and (take.cut != "time" or not steps):
        return replace(_did_not_run(name, take), findings=others)
    cut = f", and was ended after {stage.question.settings.limit_s:g} s" if take.cut else " and ended"
    said = f"{ranks} ranks ran {count(steps, 'step')}{cut}; the rules found nothing against it"
    troubles = [event for rank in take.trace.ranks for event in rank.of(Trouble)]
    if troubles:
        said += f"; {count(len(troubles), 'thing')} could not be recorded, first {troubles[0].error[:200]}"
    return Rung(name, Status.PASS, said, findings=others)


def judged(stage: Stage) -> tuple[Finding, ...]:
    """The rules over the plain take, and what only the comparison with the original shows."""
    trace = stage.plain().trace
    if not trace.ranks or not all(rank.events for rank in trace.ranks):
        return ()
    found = judge(trace, accepted=stage.question.accept)
    if any(one.code == "LS100" for one in found):
        return found  # ranks that nothing joins are no larger batch, and no nodes
    every_rank_writes = any(one.code in ("LS301", "LS304") for one in found)
    alike = () if any(one.code.startswith("LS2") for one in found) else _other_data(stage)
    return (*found, *(() if every_rank_writes else _writers_of_nodes(stage)), *_larger_batch(stage), *alike)


def _other_data(stage: Stage) -> Iterator[Finding]:
    return other_data(stage.reference().trace, stage.plain().trace, stage.layout().batch)


def _writers_of_nodes(stage: Stage) -> tuple[Finding, ...]:
    """What only several nodes show: a rank that takes LOCAL_RANK 0 for the one that writes.

    On one node it does no harm, and a program may be meant for one: this is no error of the run that was asked about.
    """
    plain = stage.plain()
    if plain.problem or stage.question.settings.spawns:
        return ()
    if not any(event.op in ("save", "write") for rank in plain.trace.ranks for event in rank.of(File)):
        return ()
    trace = stage.nodes().trace
    found = [one for one in judge(trace) if one.code == "LS303"] if trace.ranks else []
    return tuple(replace(one, severity=Severity.NOTE, seen=f"on several nodes, {one.seen}") for one in found)


def _larger_batch(stage: Stage) -> Iterator[Finding]:
    plan = stage.layout()
    if plan.batch_reference and plan.batch and plan.batch != plan.batch_reference:
        yield Finding(
            "LS408",
            Severity.DEVIATION,
            f"one optimizer step takes {plan.batch} samples over {plan.num_ranks} ranks, "
            f"in the original {plan.batch_reference}",
            "the global batch is the original's, or another one that was declared",
            f"divide the batch size by the number of ranks ({plan.batch_reference} / {plan.num_ranks}), "
            "or declare the larger batch with --accept LS408",
            (
                Witness(f"{plan.micro} batches of {plan.size} on each of {plan.num_ranks} ranks", 0),
                Witness(f"{plan.micro_reference} batches of {plan.size_reference} in one process"),
            ),
        )


def _partition(stage: Stage) -> Rung:
    findings = tuple(one for one in judged(stage) if one.code.startswith("LS2"))
    trace = stage.plain().trace
    if any(one.code == "LS202" for one in findings) and made_anew(trace, stage.again().trace):
        said = (
            "every process makes its data at random: a rank has other samples under the same indices whenever it is "
            "started, so who reads what says nothing"
        )
        kept = tuple(one for one in findings if one.code != "LS202")
        return Rung("partition", Status.ABSTAIN, said, findings=kept)
    return partition(trace, findings, stage.question.serious(findings))


def _mirror(stage: Stage) -> Rung:
    name, plan = "mirror", stage.layout()
    if plan.per != (1, 1):
        said = (
            f"micro-batches a step: {plan.micro_reference} in the original, {plan.micro} on a rank: "
            "fed with whole batches it would do another step; slices prove it instead"
        )
        return Rung(name, Status.ABSTAIN, said, covered=True)
    take = stage.mirror()
    if take.problem:
        return _did_not_run(name, take)
    result = mirror.compare(stage.reference(), take)
    if result.exact:
        said = (
            f"fed its whole batches, {take.trace.num_ranks} ranks equal it bit for bit: gradients, rates and weights "
            f"of {count(result.steps, 'step')}"
        )
        return Rung(name, Status.PASS, said)
    if _no_loader(stage, result):
        said = "batches come from no DataLoader, and ranks draw other ones than the single process: nothing to compare"
        return Rung(name, Status.ABSTAIN, said)
    declared = _differs_by_declaration(result, stage)
    if declared or (result.share_dependent and _shard_holds(stage)):
        said = (
            "another rate or batch is declared"
            if declared
            else "the program's arithmetic depends on the share of a rank, so whole batches cannot mirror it"
        )
        return Rung(name, Status.ABSTAIN, f"{said}; slices prove it instead", covered=True)
    said = f"fed the original's whole batches, the ranks differ from it first at step {_first(result)}"
    return Rung(name, Status.FAIL, said, result.differences, causes.of_mirror(stage, take, result))


def _no_loader(stage: Stage, result: mirror.Mirrored) -> bool:
    early = {one.what for one in result.differences} & {"input", "output"}
    return bool(early) and not stage.reference().trace.ranks[0].events_have_batches


def _shard_holds(stage: Stage) -> bool:
    reference = stage.double_reference()
    take = stage.shard()
    return not take.problem and not reference.problem and shard.compare(reference, take).passed


def _shard(stage: Stage) -> Rung:
    name = "shard"
    if not stage.reference().trace.ranks[0].events_have_batches:
        return Rung(name, Status.ABSTAIN, "batches come from no DataLoader, so no rank can be given a slice of one")
    reference = stage.double_reference()
    if reference.problem:
        said = f"the original does not run in float64: {reference.problem}"
        return Rung(name, Status.ABSTAIN, said)
    take = stage.shard()
    if take.problem:
        return Rung(name, Status.ABSTAIN, f"the program does not run on slices in float64: {take.problem}")
    result = shard.compare(reference, take)
    if result.passed:
        said = (
            f"fed slices in float64, {take.trace.num_ranks} ranks make its gradients and weights over "
            f"{count(result.steps, 'step')}; largest relative error {result.error:.1e}"
        )
        return Rung(name, Status.PASS, said)
    if not result.kept:
        return Rung(name, Status.ABSTAIN, shard.TOO_LARGE)
    said = f"fed slices in float64, the ranks differ from the single process first at step {_first(result)}"
    if result.error > shard.BUG:
        said += f": relative error {result.error:.2g} of the gradient, where rounding makes 1e-15"
    return Rung(name, Status.FAIL, said, result.differences, causes.of_shard(stage, take, result))


def _mixed_precision(stage: Stage) -> Rung | None:
    name = "mixed precision"
    take = stage.plain()
    kinds = {event.autocast for rank in take.trace.ranks for event in rank.of(Forward) if event.autocast}
    scalers = [[event.scale for event in rank.of(Scaler)] for rank in take.trace.ranks]
    if not kinds and not any(scalers):
        return None
    if any(scales != scalers[0] for scales in scalers):
        return Rung(name, Status.FAIL, "the scales of the ranks' gradient scalers differ (LS118)")
    mirrored = mirror.compare(stage.reference(), stage.mirror()) if stage.layout().per == (1, 1) else None
    what = f"autocast ({', '.join(sorted(kinds))})" if kinds else "a gradient scaler"
    if mirrored is not None and mirrored.exact:
        said = f"{what} is on in the mirror, which is exact"
        if any(scalers):
            said += f"; the scales of the ranks are the same at {count(len(scalers[0]), 'update')}"
        return Rung(name, Status.PASS, said)
    return Rung(name, Status.ABSTAIN, f"{what} is used, and no mirror shows that both sides use it alike")
