"""The example that the docs show: it loads by name, trains, and is about forty lines."""

import ast
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from lockstep.recipes.resolve import load_recipe

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_recipe.py"


def test_it_learns(folder: Path) -> None:
    torch.manual_seed(0)
    recipe = load_recipe(f"{EXAMPLE}:MyRecipe", {"hidden": 8})
    model = recipe.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        for batch in DataLoader(recipe.train_data(), 16, shuffle=True):
            term = recipe.loss(model, batch)["loss"]
            optimizer.zero_grad()
            (term.sum / term.count).backward()
            optimizer.step()
    metrics = recipe.metrics()
    for batch in DataLoader(recipe.val_data() or [], 16):
        recipe.evaluate(model.eval(), batch, metrics)
    assert metrics["accuracy"].compute() > 0.9


def test_it_stays_short() -> None:
    (recipe,) = (node for node in ast.parse(EXAMPLE.read_text()).body if isinstance(node, ast.ClassDef))
    assert recipe.end_lineno is not None and recipe.end_lineno - recipe.lineno < 45
