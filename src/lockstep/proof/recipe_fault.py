"""The fault rung of a recipe: the runtime when one rank throws an error, and when one is killed while it saves."""

from dataclasses import dataclass
from functools import partial

from lockstep.core.finding import Finding
from lockstep.core.proof import Cause, Difference, Rung, Status
from lockstep.proof import restart
from lockstep.proof.aftermath import Aftermath, aftermath
from lockstep.proof.align import views
from lockstep.proof.recipe_takes import RecipeMode, Recipes
from lockstep.proof.strike import FaultWatch, Strike
from lockstep.proof.takes import Settings, Take
from lockstep.trace.recorder import Recorder

NAME = "fault"


@dataclass(frozen=True)
class RecipeStruck(RecipeMode):
    """A recipe of which one rank meets with a fault."""

    strike: Strike | None = None

    def __call__(self, recorder: Recorder, feed: object) -> None:
        """Called when the hooks are in place."""
        super().__call__(recorder, feed)
        if self.strike is not None:
            self.strike.arm(recorder)


def recipe_fault(recipes: Recipes, settings: Settings, plain: Take) -> Rung | None:
    """One rank throws an error; rank 0 is killed in its second save, and a fresh run goes on from the first.

    Args:
        plain: the ranks as the config says, to the end.

    Returns: None where it makes too few steps for two saves and a step after them.
    """
    total = min((len(views(rank)) for rank in plain.trace.ranks), default=0)
    every = max(min(settings.steps, total) // 3, 1)
    if total <= 2 * every:
        return None
    often = [f"checkpoint.every_steps={every}"]
    last = settings.num_ranks - 1
    told: list[str] = []
    for strike in (Strike("raise", last, min(2, total - 1)), Strike("save", 0, 2 * every)):
        take = _struck(recipes, settings, strike, total, often)
        seen = aftermath(take, strike, plain, settings.num_ranks)
        if seen.mark is None:
            said = f"rank {strike.rank} did not come to step {strike.step}: {take.problem or 'it ended before'}"
            return Rung(NAME, Status.ABSTAIN, said)
        if seen.findings:
            return _broken(seen.findings[0], seen.findings)
        told.append(_said(strike, seen, settings.num_ranks))
    return _goes_on(recipes, settings, plain, take, every, often, "; ".join(told))


def _struck(recipes: Recipes, settings: Settings, strike: Strike, total: int, often: list[str]) -> Take:
    name = "one rank failing" if strike.kind == "raise" else "killed while saving"
    watched = partial(
        FaultWatch,
        num_ranks=settings.num_ranks,
        due_s=settings.limit_s,
        limit_s=settings.limit_s,
        quiet_s=settings.quiet_s,
    )
    mode = RecipeStruck(strike=strike)
    return recipes.take(name, settings.num_ranks, total, often, mode, keep=False, watched=watched)


def _goes_on(
    recipes: Recipes, settings: Settings, plain: Take, broken: Take, every: int, often: list[str], told: str
) -> Rung:
    """From what the killed run left to as many steps as the untouched one's first `settings.steps`."""
    steps = max(settings.steps, 2 * every + 1)
    resumed = recipes.take("resumed after the kill", settings.num_ranks, steps, often, after=broken)
    if resumed.problem:
        said = f"{told}; resumed from what was left: {resumed.problem}"
        return Rung(NAME, Status.FAIL, said, causes=(_own_fault(),))
    where = restart.locate(plain.trace.ranks[0], resumed.trace.ranks[0], every)
    result = restart.compare(plain, resumed, restart.Restart({0: every}), ends=False)
    if where is None or where.total != every:
        first = Difference(every, "start", seen="other weights", wanted=f"those after {every} steps")
        said = f"{told}; it does not go on from the checkpoint before"
        return Rung(NAME, Status.FAIL, said, (first,), (_own_fault(),))
    if result.differences or not result.steps:
        said = f"{told}; resumed at step {every}, it is not the untouched run"
        return Rung(NAME, Status.FAIL, said, result.differences, (_own_fault(),))
    said = f"{told}; it went on from step {every}, {result.steps} steps bit for bit"
    return Rung(NAME, Status.PASS, said)


def _said(strike: Strike, seen: Aftermath, num_ranks: int) -> str:
    if strike.kind == "raise":
        gone = f"all {num_ranks} processes gone in {seen.seconds:.2f} s"
        return f"an error on rank {strike.rank}: {gone}"
    return f"rank {strike.rank} killed in its save (step {strike.step}): in {seen.seconds:.2f} s"


def _own_fault() -> Cause:
    return Cause("the runtime's own checkpoint, or state of the recipe that is outside its model", "report it")


def _broken(worst: Finding, findings: tuple[Finding, ...]) -> Rung:
    return Rung(NAME, Status.FAIL, f"{worst.code}, {worst.seen}", findings=findings)
