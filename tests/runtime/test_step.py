"""One step over all ranks: exact means, one decision, one norm, one schedule."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.session import Session
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.regression import (
    DROPPED,
    FINE,
    INF,
    LARGE,
    NAN,
    STEEP,
    Host,
    Regression,
    gradients_of,
    samples,
    session_of,
    step_of,
    weights_of,
)

SGD = ["optim.name=sgd", "optim.momentum=0", "optim.weight_decay=0", "optim.lr=0.1", "schedule.name=constant"]
D, F = DROPPED, FINE
# By rank and micro-step, the kinds of the samples; ranks beyond the second are as the second.
SHARES: dict[str, list[list[list[int]]]] = {
    "equal": [[[F, F]], [[F, F]]],
    "unequal": [[[F]], [[F, F, F, F, F]]],
    "some dropped": [[[F, D, D, D]], [[F, F, F, D]]],
    "all dropped on rank 0": [[[D, D]], [[F, F]]],
    "all dropped on rank 1": [[[F, F, F]], [[D]]],
    "all dropped": [[[D]], [[D, D]]],
    "three micro-steps": [[[F, D], [F], [F, F]], [[F], [D, D], [F, F, F]]],
    "three micro-steps, one without": [[[D], [F, F], [D]], [[D], [F], [D]]],
    "three micro-steps, none with": [[[D], [D, D], [D]], [[D], [D], [D]]],
}
RECIPES = {
    "whole": Regression(),
    "known": Regression(counts="known"),
    "late": Regression(counts="late"),
    "two terms, known": Regression(terms=2, counts="known"),
    "two terms, whole": Regression(terms=2),
    "two terms, late": Regression(terms=2, counts="late"),
}


def cases() -> list[tuple[str, str]]:
    """Several terms that only the loss can count cannot be accumulated."""
    return [
        (recipe, share)
        for recipe in RECIPES
        for share in SHARES
        if not ("micro" in share and recipe.startswith("two terms") and "known" not in recipe)
    ]


def hosts_of(share: str, rank: int) -> list[Host]:
    return [samples(kinds, 10 * rank + m) for m, kinds in enumerate(SHARES[share][min(rank, 1)])]


def expected_of(recipe: Regression, share: str, model: nn.Module, num_ranks: int) -> tuple[dict[str, float], Tensor]:
    """Counts over everything, and the gradient of the sum of weighted means, written out."""
    terms = [recipe.loss(model, _double(host)) for rank in range(num_ranks) for host in hosts_of(share, rank)]
    counts = {name: sum(float(one[name].count) for one in terms) for name in terms[0]}
    means = [
        sum((one[name].sum for one in terms), torch.zeros(())) * terms[0][name].weight / counts[name]
        for name in counts
        if counts[name]
    ]
    if not means:
        return counts, torch.zeros(4, dtype=torch.float64)
    grads = torch.autograd.grad(torch.stack(means).sum(), list(model.parameters()))
    return counts, torch.cat([grad.flatten() for grad in grads])


def _double(host: Host) -> Host:
    return {name: value.double() if value.is_floating_point() else value for name, value in host.items()}


def exact() -> dict[tuple[str, str], dict[str, Any]]:
    """Each case's step on every rank, beside what it must be."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with World.enter(threads=1) as world:
        for name, recipe in RECIPES.items():
            session = session_of(recipe, world, "precision=fp64", *SGD)
            for key in [case for case in cases() if case[0] == name]:
                counts, gradient = expected_of(recipe, key[1], session.model, world.num_ranks)
                before = weights_of(session)
                result = step_of(session, hosts_of(key[1], world.rank))
                found[key] = {
                    "counts": (dict(result.counts), counts),
                    "error": float((gradients_of(session) - gradient).norm() / (gradient.norm() or 1.0)),
                    "norm": (result.grad_norm, float(gradient.norm())),
                    "moved": float((before - 0.1 * gradient - weights_of(session)).abs().max()),
                    "updated": result.updated,
                    "weights": weights_of(session).tolist(),
                    "sums": {term: float(value) for term, value in result.sums.items()},
                    "lr": result.lr,
                }
            session.replica.close()
    return found


@pytest.fixture(scope="module")
def steps() -> dict[int, list[dict[tuple[str, str], dict[str, Any]]]]:
    return {n: run_ranks(exact, n) for n in (1, 2, 3)}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("case", cases(), ids=", ".join)
def test_the_loss_is_the_mean_over_all_that_counts(steps: Any, case: tuple[str, str], num_ranks: int) -> None:
    ranks = [rank[case] for rank in steps[num_ranks]]
    for found in ranks:
        assert found["counts"][0] == found["counts"][1]
        assert found["error"] < 1e-14
        assert found["norm"][0] == pytest.approx(found["norm"][1], rel=1e-13)
        assert found["moved"] < 1e-15
        assert found["updated"]
        assert found["weights"] == ranks[0]["weights"]
        assert found["lr"] == 0.1
    total = sum(found["sums"]["squares"] for found in ranks)
    assert (total == 0) == (ranks[0]["counts"][1]["squares"] == 0)


@dataclass(frozen=True)
class Bad:
    """What goes wrong on rank 1, in which precision."""

    kind: int
    precision: str
    micro: int = 0  # of 2


BAD = {
    f"{name}, {precision}": Bad(kind, precision)
    for name, kind in (("nan", NAN), ("inf", INF), ("steep", STEEP), ("large", LARGE))
    for precision in ("fp64", "fp32", "bf16", "fp16")
    if not (name == "large" and precision == "fp64")  # 1e25 is fine in double
}
BAD |= {f"nan in the last micro-step, {p}": Bad(NAN, p, 1) for p in ("fp32", "fp16")}


def one_bad_step(world: World, bad: Bad) -> dict[str, Any]:
    """A good step, one that is bad on the last rank alone, a good one."""
    accumulation = "batch.accumulation=2"
    session = session_of(Regression(), world, f"precision={bad.precision}", "schedule.name=linear", accumulation)
    session.precision.scaler._init_scale = 2.0**10
    good = [samples([F, F], world.rank), samples([F], world.rank + 5)]
    last = world.rank == world.num_ranks - 1
    wrong = [samples([F, bad.kind if last and m == bad.micro else F], world.rank) for m in range(2)]
    found: dict[str, Any] = {"updated": [], "weights": [], "lr": [], "scale": [], "norm": [], "state": []}
    for hosts in (good, wrong, good):
        result = step_of(session, hosts)
        found["updated"].append(result.updated)
        found["norm"].append(result.grad_norm)
        found["weights"].append(weights_of(session).tolist())
        found["lr"].append(session.state.schedule.get_last_lr())
        found["scale"].append(session.precision.scaler.get_scale())
        state = session.state.optimizer.state
        found["state"].append([float(state[p]["step"]) for p in session.step.params])
    session.replica.close()
    return found


def all_bad() -> dict[str, dict[str, Any]]:
    with World.enter(threads=1) as world:
        return {name: one_bad_step(world, bad) for name, bad in BAD.items()}


@pytest.fixture(scope="module")
def bad_steps() -> list[dict[str, dict[str, Any]]]:
    return run_ranks(all_bad, 2)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_share_on_one_rank_is_skipped_by_all(bad_steps: list[dict[str, dict[str, Any]]], name: str) -> None:
    first, second = (rank[name] for rank in bad_steps)
    for key in ("updated", "weights", "lr", "scale", "state"):
        assert first[key] == second[key], key
    assert first["updated"] == [True, False, True]
    assert [math.isfinite(norm) for norm in first["norm"]] == [True, False, True]
    weights = first["weights"]
    assert weights[0] == weights[1] != weights[2]
    assert all(math.isfinite(value) for value in weights[2])
    assert first["state"] == [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    assert first["lr"][0] == first["lr"][1] > first["lr"][2]  # a step without an update is none of the schedule
    scales = {BAD[name].precision: first["scale"]}
    assert scales.get("fp16", [1.0] * 3)[0] == first["scale"][0]
    if BAD[name].precision == "fp16" and BAD[name].kind != LARGE:
        assert first["scale"] == [2.0**10, 2.0**9, 2.0**9]
    elif BAD[name].precision != "fp16":
        assert first["scale"] == [1.0] * 3


def scaled() -> dict[str, list[Any]]:
    """fp16 from a scale that overflows: it is found by overflowing, and grows again."""
    with World.enter(threads=1) as world:
        session = session_of(Regression(), world, "precision=fp16", *SGD)
        scaler = session.precision.scaler
        scaler._init_scale = 2.0**127
        scaler.set_growth_interval(3)
        found: dict[str, list[Any]] = {"scale": [], "updated": [], "weights": []}
        for step in range(12):
            if step == 4:
                scaler.update(2.0**8)
            result = step_of(session, [samples([F, F], 10 * world.rank + step)])
            found["scale"].append(scaler.get_scale())
            found["updated"].append(result.updated)
            found["weights"].append(weights_of(session).tolist())
        session.replica.close()
        return found


def test_the_scaler_decides_the_same_on_every_rank() -> None:
    first, second = run_ranks(scaled, 2)
    assert first == second
    assert first["updated"][:1] == [False]
    assert first["scale"][:2] == [2.0**126, 2.0**125]
    assert first["updated"][4:] == [True] * 8
    assert first["scale"][4:] == [2.0**8] * 2 + [2.0**9] * 3 + [2.0**10] * 3
    assert all(math.isfinite(value) for weights in first["weights"] for value in weights)


def clipped() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        found: dict[str, Any] = {}
        for limit in (0.05, 1e6):
            session = session_of(Regression(), world, "precision=fp64", *SGD, f"optim.clip_norm={limit}")
            before = weights_of(session)
            result = step_of(session, [samples([F, F, F], world.rank)])
            moved = float((weights_of(session) - before).norm()) / 0.1
            found[str(limit)] = result.grad_norm, moved, weights_of(session).tolist()
            session.replica.close()
        return found


def test_clipping_is_by_the_norm_of_the_gradient_of_all_ranks() -> None:
    for n in (1, 2):
        ranks = run_ranks(clipped, n)
        assert ranks == ranks[:1] * n
        norm, moved, _ = ranks[0]["0.05"]
        assert norm > 0.1  # told as it was before clipping
        assert moved == pytest.approx(0.05, rel=1e-4)
        norm, moved, _ = ranks[0]["1000000.0"]
        assert moved == pytest.approx(norm, rel=1e-12)


class Changing(Regression):
    """A further term from the second step on."""

    calls = 0

    def loss(self, model: nn.Module, batch: Host) -> Any:
        self.calls += 1
        terms = super().loss(model, batch)
        return terms if self.calls < 3 else {**terms, **{f"{name} again": term for name, term in terms.items()}}


class Moody(Regression):
    """A parameter that one rank has no use for."""

    def model(self) -> nn.Module:
        return nn.ModuleDict({"left": nn.Linear(3, 1), "right": nn.Linear(3, 1)})

    def loss(self, model: nn.Module, batch: Host) -> Any:
        side = model["left" if float(batch["x"][0, 0]) > 0 else "right"]  # type: ignore[index]
        return super().loss(side, batch)


def said(session: Session, hosts: list[Host]) -> str:
    try:
        step_of(session, hosts)
    except UserError as error:
        return str(error)
    return ""


def mistakes() -> dict[str, Any]:
    with World.enter(threads=1) as world:
        found: dict[str, Any] = {}
        for kind in ("whole", "known"):
            session = session_of(Changing(counts=kind), world)
            found[f"changing, {kind}"] = [said(session, [samples([F])]) for _ in range(2)]
            session.replica.close()
        session = session_of(Regression(terms=2), world, "batch.accumulation=2")
        found["two terms"] = said(session, [samples([F]), samples([F])])
        session.replica.close()
        session = session_of(Moody(), world)
        host = samples([F, F])
        host["x"][0, 0] = 1.0 if world.rank else -1.0
        found["unused"] = sorted(step_of(session, [host]).unused)
        session.replica.close()
        return found


def test_what_a_recipe_gets_wrong_in_a_step_is_said_on_every_rank() -> None:
    for found in run_ranks(mistakes, 2):
        for kind in ("whole", "known"):
            first, second = found[f"changing, {kind}"]
            assert first == ""
            assert "squares again" in second
            assert "in every step" in second
        assert "2 terms with 2 micro-steps and no counts(batch)" in found["two terms"]
        assert "write counts(batch)" in found["two terms"]
        assert found["unused"] == ["left.bias", "left.weight", "right.bias", "right.weight"]
