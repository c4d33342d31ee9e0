"""The proof of a recipe: the runtime on N ranks against itself on one, in float64, from a config."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path

import numpy as np
import torch

from lockstep.core.digest import file_digest, value_digest
from lockstep.core.finding import Finding, Severity
from lockstep.core.proof import Cause, Curve, Difference, Proof, Rung, Status
from lockstep.proof import restart, shard, values
from lockstep.proof.align import samples, views
from lockstep.proof.finished import read_journal
from lockstep.proof.partition import partition, shares
from lockstep.proof.pictures import timeline
from lockstep.proof.prove import sources
from lockstep.proof.recipe_fault import recipe_fault
from lockstep.proof.recipe_takes import DOUBLE, RecipeMode, Recipes, imported
from lockstep.proof.takes import Settings, Take, open_studio
from lockstep.recipes.resolve import check_recipe_name
from lockstep.rules.judge import judge
from lockstep.runtime.config import load_config
from lockstep.trace.events import Batch, Model, Optimizer
from lockstep.trace.trace import RankTrace, Trace

NATIVE = 1e-12
"""Relative error beyond which a difference between numbers of ranks is none of rounding; measured are some 1e-15."""
PLAIN = ("parallel.strategy=ddp", "memory.activation_checkpointing=false", "run.compile=off")
"""What a model is held against: not in shards, nothing recomputed or compiled."""
LONGEST = 200
"""Optimizer steps of an epoch up to which the plain run reads a whole one."""


def prove_recipe(
    config_path: Path | None,
    overrides: Sequence[str],
    settings: Settings,
    accept: Sequence[str] = (),
    all_rungs: bool = False,
    told: Callable[[Rung], None] = lambda rung: None,
) -> Proof:
    """Is a recipe on `settings.num_ranks` ranks the training that it is on one?

    Args:
        config_path, overrides: as for `lockstep train`.
        settings: ranks, steps that are compared, limits.
        accept: codes of deviations that are declared.
        all_rungs: go on after a broken rung.
        told: called with each rung as it ends.

    Raises:
        UserError: the config or the recipe's name is wrong.
    """
    began = time.monotonic()
    rungs: list[Rung] = []
    name = load_config(config_path, overrides).recipe
    check_recipe_name(name)
    imported(name)
    with open_studio(settings) as studio:
        recipes = Recipes(studio, config_path, tuple(overrides), Path.cwd().resolve())
        stage = _Stage(recipes, settings, tuple(accept))
        for rung in _climb(stage, all_rungs):
            rungs.append(rung)
            told(rung)
        made = {take.name: take for take in studio.takes}
        plain = made.get("two processes")
        line = " ".join(["lockstep train", *([str(config_path)] if config_path else []), *overrides])
        return Proof(
            program=line,
            reference=f"{line} (one process)",
            num_ranks=settings.num_ranks,
            rungs=tuple(rungs),
            accepted=tuple(accept),
            curves=_curves(made),
            shares=shares(plain.trace)[:8] if plain is not None else (),
            timeline=timeline(plain.trace, rungs) if plain is not None else (),
            digests=_digests(recipes, config_path),
            sources=sources(rungs),
            seconds=time.monotonic() - began,
        )


def _curves(made: Mapping[str, Take]) -> tuple[Curve, ...]:
    """The loss at each step of one process and of the ranks, in float64, as the runs logged it."""
    found = []
    for name in ("reference in float64", "shard"):
        if name in made and (made[name].folder.parent / "run" / "metrics.jsonl").is_file():
            records = read_journal(made[name].folder.parent / "run")
            ranks = made[name].trace.num_ranks
            label = "one process" if ranks == 1 else f"{ranks} ranks"
            found.append(Curve(label, tuple(float(record.get("loss", nan)) for record in records)))
    return tuple(found)


def _digests(recipes: Recipes, path: Path | None) -> dict[str, str]:
    mine = {} if path is None else {"config file": file_digest(path)}
    values_of = recipes.config().model_dump(mode="json")
    return {
        **mine,
        "config": value_digest({key: value for key, value in values_of.items() if key != "run"}),
        "recipe": file_digest(recipes.script),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


@dataclass
class _Stage:
    """The takes that several rungs need, each made once."""

    recipes: Recipes
    settings: Settings
    accept: tuple[str, ...]
    made: dict[str, Take] = field(default_factory=dict)

    def reference(self) -> Take:
        """One process in float64, the model as a recipe gives it."""
        return self._double("reference in float64", 1, PLAIN)

    def sharded(self, name: str = "shard", synced: bool = False) -> Take:
        """N ranks in float64; with BatchNorm synchronised where its local form is declared."""
        synced = synced or "LS116" in self.accept
        return self._double(name, self.settings.num_ranks, ["parallel.sync_batchnorm=true"] if synced else [])

    def other_noise(self) -> Take:
        """One process in float64 whose training draws from another stream."""
        return self._double("other noise", 1, PLAIN, mode=RecipeMode(no_dropout=True, other_noise=True))

    def _double(
        self,
        name: str,
        num_ranks: int,
        more: Sequence[str] = (),
        mode: RecipeMode = RecipeMode(no_dropout=True),  # noqa: B008
    ) -> Take:
        if name not in self.made:
            steps = self.settings.steps
            self.made[name] = self.recipes.take(name, num_ranks, steps, [*DOUBLE, *more], mode)
        return self.made[name]

    def plain(self) -> Take:
        """N ranks as the config says: one epoch and some steps, where it is no long one."""
        if "two processes" not in self.made:
            epoch = self._epoch()
            steps = self.settings.steps + (epoch if epoch is not None and epoch <= LONGEST else 0)
            self.made["two processes"] = self.recipes.take("two processes", self.settings.num_ranks, steps)
        return self.made["two processes"]

    def _epoch(self) -> int | None:
        """Optimizer steps of the first epoch, None for a stream."""
        manifest = self.reference().folder.parent / "run" / "manifest.json"
        if not manifest.is_file():
            return None
        steps: int | None = json.loads(manifest.read_text(encoding="utf-8"))["steps_per_epoch"]
        return steps

    def serious(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Those that break a rung."""
        return tuple(
            one
            for one in findings
            if one.severity is Severity.ERROR or (one.severity is Severity.DEVIATION and one.code not in self.accept)
        )

    def findings(self) -> tuple[Finding, ...]:
        """Of the rules over the plain take, with what to do about it in a config."""
        steps = {"LS116": "set parallel.sync_batchnorm=true, use GroupNorm, or declare it with --accept LS116"}
        return tuple(replace(one, next_step=steps.get(one.code, one.next_step)) for one in judge(self.plain().trace))


def _climb(stage: _Stage, all_rungs: bool) -> Iterator[Rung]:
    rungs: tuple[Callable[[_Stage], Rung | None], ...]
    rungs = (_one_process, _processes, _partition, _mirror, _shard, _resume, _fault)
    for climb in rungs:
        began = time.monotonic()
        made = climb(stage)
        if made is None:
            continue
        rung = replace(made, seconds=time.monotonic() - began)
        yield rung
        if rung.status is Status.ERROR or (rung.status is Status.FAIL and not all_rungs):
            return


def _fault(stage: _Stage) -> Rung | None:
    return recipe_fault(stage.recipes, stage.settings, stage.plain())


def _did_not_run(name: str, take: Take) -> Rung:
    seen, *explained = take.problem.splitlines()
    seen = seen.rstrip(".")
    lines = [line for line in "".join(take.output).splitlines() if line.strip()]
    said = (
        seen
        + "." * (not seen.endswith("?"))
        + (f" It said last: {lines[-1].strip()[:200]}" if lines and not explained else "")
    )
    next_step = "give a longer --timeout" if take.cut == "time" else "run it with `lockstep train` and mend it"
    told = [line.partition("Next: ")[2] for line in explained if "Next: " in line]
    return Rung(name, Status.ERROR, said, causes=(Cause(seen, told[0] if told else next_step),))


def _one_process(stage: _Stage) -> Rung:
    take = stage.reference()
    if take.problem:
        return _did_not_run("one process", take)
    steps = len(views(take.trace.ranks[0]))
    return Rung("one process", Status.PASS, f"it trains as one process in float64, dropout off: {steps} steps recorded")


def _processes(stage: _Stage) -> Rung:
    name, take = f"{stage.settings.num_ranks} processes", stage.plain()
    if take.problem and take.cut != "time":
        return _did_not_run(name, take)
    others = tuple(one for one in stage.findings() if not one.code.startswith("LS2"))
    serious = stage.serious(others)
    if serious:
        worst = serious[0]
        said = f"{len(serious)} finding{'s' * (len(serious) > 1)}; the first: {worst.code}, {worst.seen}"
        return Rung(name, Status.FAIL, said, causes=(Cause(worst.seen, worst.next_step, worst.code),), findings=others)
    steps = min(len(views(rank)) for rank in take.trace.ranks)
    said = f"{take.trace.num_ranks} ranks ran {steps} steps; the rules found nothing against it"
    return Rung(name, Status.PASS, said, findings=others)


def _partition(stage: _Stage) -> Rung:
    findings = tuple(one for one in stage.findings() if one.code.startswith("LS2"))
    rung = partition(stage.plain().trace, findings, stage.serious(findings))
    one, many = stage.reference(), stage.sharded()
    if rung.status is not Status.PASS or many.problem:
        return rung
    steps, other = same_batches(one.trace, many.trace)
    if other is not None:
        said = f"one process and {many.trace.num_ranks} read other samples in step {other.step}"
        next_step = "read the same set in the same order on every rank; the runtime deals it"
        return replace(rung, status=Status.FAIL, said=said, differences=(other,), causes=(Cause(said, next_step),))
    return replace(rung, said=f"{rung.said}; the global batches of {steps} steps are those of one process")


def same_batches(one: Trace, many: Trace, after: int = 0) -> tuple[int, Difference | None]:
    """Whether every step takes the same samples at both numbers of ranks.

    Args:
        after: the second run begins after so many steps of the first.

    Returns: (steps that do, the first difference).
    """
    first = [_by_step(rank) for rank in one.ranks]
    second = [_by_step(rank) for rank in many.ranks]
    common = min(min(map(len, first)) - after, min(map(len, second)))
    for step in range(common):
        wanted, seen = (
            sum((rank[at] for rank in ranks), Counter()) for ranks, at in ((first, step + after), (second, step))
        )
        if wanted != seen:
            texts = (_listed(seen - wanted), _listed(wanted - seen))
            return step, Difference(step + after, "batch", "", None, *texts)
    return common, None


def _by_step(rank: RankTrace) -> list[Counter[object]]:
    return [Counter(one for batch in view.of(Batch) if batch.grad for one in samples(batch)) for view in views(rank)]


def _listed(some: Counter[object]) -> str:
    shown = sorted(map(str, some.elements()), key=lambda text: (len(text), text))
    return f"{len(shown)} others: {', '.join(shown[:6])}{', ...' * (len(shown) > 6)}"


def _mirror(stage: _Stage) -> Rung:
    said = "the runtime weighs each rank by what it read, so whole batches for all would be another step"
    return Rung("mirror", Status.ABSTAIN, said, covered=True)


def _shard(stage: _Stage) -> Rung:
    name, reference, take = "shard", stage.reference(), stage.sharded()
    if take.problem:
        return _did_not_run(name, take)
    result = shard.compare(reference, take)
    if result.passed and result.error <= NATIVE:
        said = (
            f"{take.trace.num_ranks} ranks in float64 make the gradients and weights of one process over "
            f"{result.steps} steps: largest relative error {result.error:.1e}"
        )
        return Rung(name, Status.PASS, said)
    if not result.kept:
        return Rung(name, Status.ABSTAIN, shard.TOO_LARGE)
    if not _same_step(reference, stage.other_noise()):
        said = "the training draws random numbers of its own (beside dropout), on every rank other ones on purpose"
        return Rung(name, Status.ABSTAIN, f"{said}: the ranks' gradients cannot be one process's")
    first = result.differences[0].step if result.differences else result.steps
    differences = tuple(_told(one) for one in result.differences if one.what not in _cut_kinds(reference, first))
    said = (
        f"in float64 the ranks differ from one process first at step {first}: "
        f"relative error {result.error:.2g} of the gradient, where rounding makes 1e-15"
    )
    return Rung(name, Status.FAIL, said, differences, (_cause(stage),))


def _cut_kinds(reference: Take, step: int) -> tuple[str, ...]:
    """What is put together from the ranks one after the other. They take turns: only in the first micro-step is that
    the order of one process."""
    micro = sum(1 for batch in views(reference.trace.ranks[0])[0].of(Batch) if batch.grad)
    return () if step == 0 and micro == 1 else ("batch", "output")


def _told(one: Difference) -> Difference:
    """The runtime holds the recipe's model as `model`."""
    return replace(one, name=one.name.removeprefix("model."))


def _same_step(reference: Take, take: Take) -> bool:
    """Whether the first step has the same gradients."""
    steps = [views(one.trace.ranks[0])[:1] if one.trace.ranks else [] for one in (reference, take)]
    if not steps[0] or not steps[1]:
        return True
    one, other = values.gradients(reference, 0, steps[0][0]), values.gradients(take, 0, steps[1][0])
    return values.total(values.errors(one, other)) <= NATIVE


def _cause(stage: _Stage) -> Cause:
    local = any(event.batch_norms for event in stage.sharded().trace.ranks[0].of(Model))
    if local and shard.compare(stage.reference(), stage.sharded("shard, synchronised", True)).passed:
        text = "BatchNorm sees only the samples of its own rank"
        next_step = "set parallel.sync_batchnorm=true, or declare it with --accept LS116"
        return Cause(text, next_step, "LS116", True)
    text = "the loss of a share is not its part of the whole: a term's sum or count depends on how the batch is cut"
    return Cause(text, "give each term as a sum over elements and their count (a Term), never as a mean", "LS410")


def _begins_at(unbroken: Take, resumed: Take, step: int) -> bool:
    """Whether a resumed run begins with the weights that the unbroken one had after so many steps."""
    one, other = unbroken.trace.ranks[0], resumed.trace.ranks[0]
    if not any(any(event.sharded) for event in one.of(Optimizer)):
        place = restart.locate(one, other, step)
        return place is not None and place.total == step
    # Parts of another number of ranks have other digests; their values are put together.
    before, after = [views(side) for side in (one, other)]
    if len(before) < step or not after:
        return False
    weights = values.parameters(unbroken, 0, before[step - 1]).arrays, values.starts(resumed, 0, after[0]).arrays
    return weights[0].keys() == weights[1].keys() and all(
        np.array_equal(value, weights[1][key]) for key, value in weights[0].items()
    )


def _resume(stage: _Stage) -> Rung:
    name, ranks = "resume", stage.settings.num_ranks
    unbroken = stage.plain()
    if unbroken.problem and unbroken.cut != "time":
        return _did_not_run(name, unbroken)
    half = min(stage.settings.steps, len(views(unbroken.trace.ranks[0]))) // 2
    if not half:
        return Rung(name, Status.ABSTAIN, "the run has a single step: there is nothing to go on with")
    stopped = stage.recipes.take("stopped", ranks, half, keep=False)
    if stopped.problem:
        return _did_not_run(name, stopped)
    steps = 2 * half
    resumed = stage.recipes.take("resumed", ranks, steps, after=stopped)
    alone = stage.recipes.take("resumed alone", 1, steps, after=stopped)
    for take in (resumed, alone):
        if take.problem:
            return _did_not_run(name, take)
    result = restart.compare(unbroken, resumed, restart.Restart({0: half}), ends=False)
    found = all(_begins_at(unbroken, take, half) for take in (resumed, alone))
    count, other = same_batches(unbroken.trace, alone.trace, half)
    said = f"stopped after {half} steps and resumed on {ranks} ranks"
    if result.differences or not result.steps or not found or other:
        differences = result.differences or ((other,) if other is not None else ())
        cause = Cause("the runtime's own checkpoint, or state of the recipe that is outside its model", "report it")
        return Rung(name, Status.FAIL, f"{said}, it is not the unbroken run", differences, (cause,))
    said = (
        f"stopped after {half} steps and resumed, {ranks} ranks equal the unbroken run bit for bit over "
        f"{result.steps} steps; one rank goes on with the same weights and samples ({count} steps)"
    )
    return Rung(name, Status.PASS, said)
