"""What a take of a recipe is made of; tests/proof/test_recipe.py runs some."""

from pathlib import Path

from lockstep.proof.recipe_takes import ALWAYS, DOUBLE, Recipes, _callers, _without
from lockstep.proof.takes import Settings, Studio
from lockstep.trace.events import Step
from tests.rules.by_hand import trace


def recipes(folder: Path, *overrides: str) -> Recipes:
    return Recipes(Studio(folder, Settings()), None, overrides, folder)


def test_overrides_come_last(tmp_path: Path) -> None:
    config = recipes(tmp_path, "recipe=points", "precision=bf16").config(*ALWAYS, *DOUBLE)
    assert (config.precision.name, config.run.device, config.run.threads) == ("fp64", "cpu", 1)


def test_the_file_of_a_recipe(tmp_path: Path) -> None:
    assert recipes(tmp_path, "recipe=points").script.name == "points.py"
    own = tmp_path / "own.py"
    own.write_text("")
    assert recipes(tmp_path, f"recipe={own}:Own").script == own.resolve()


def test_lines_below_a_forked_rank_are_no_places() -> None:
    assert __file__ in _callers()
    rank = trace([Step(optimizer=0, number=0, at=f"{__file__}:3"), Step(optimizer=0, number=1, at="own.py:7")]).ranks[0]
    assert [step.at for step in _without(rank, _callers()).of(Step)] == ["", "own.py:7"]
