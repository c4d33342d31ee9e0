import pickle
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from lockstep.core.errors import UserError
from lockstep.recipes.digit_scenes import DigitScenes
from lockstep.recipes.points import Points
from lockstep.recipes.resolve import load_recipe

HEAD = "from torch import nn\nfrom lockstep.runtime.recipe import Recipe\n"
BODY = """
class {name}(Recipe):
    def __init__(self, width: int = 3):
        self.width = width
    def model(self): return nn.Linear(self.width, 1)
    def train_data(self): return list(range(self.width))
    def loss(self, model, batch): return {{}}
"""


def write(folder: Path, *classes: str, tail: str = "", file: str = "mine.py") -> None:
    (folder / file).write_text(HEAD + "".join(BODY.format(name=name) for name in classes) + tail)


def refusal(name: str, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        load_recipe(name, options)
    return str(caught.value)


def test_built_in_recipes_load_with_their_options() -> None:
    scenes, points = load_recipe("digit_scenes", {"width": 4}), load_recipe("points", {})
    assert isinstance(scenes, DigitScenes) and scenes.width == 4
    assert isinstance(points, Points)


def test_options_of_a_built_in_are_checked() -> None:
    assert "did you mean 'width'?" in refusal("digit_scenes", widht=4)
    assert "width='4'" in refusal("digit_scenes", width="4")


def test_a_class_of_a_file_loads(folder: Path) -> None:
    write(folder, "Mine", "Hers")
    recipe = load_recipe("mine.py:Hers", {"width": 5})
    assert type(recipe).__name__ == "Hers" and recipe.model().in_features == 5


def test_a_file_with_one_recipe_needs_no_class(folder: Path) -> None:
    write(folder, "Mine")
    assert type(load_recipe("mine.py", {})).__name__ == "Mine"


def test_the_complete_one_of_a_base_and_its_subclass_is_meant(folder: Path) -> None:
    base = "\nclass Base(Recipe):\n    pass\n"
    (folder / "mine.py").write_text(HEAD + base + BODY.format(name="Mine").replace("(Recipe)", "(Base)"))
    assert type(load_recipe("mine.py", {})).__name__ == "Mine"


def test_a_file_with_several_recipes_or_none_needs_one(folder: Path) -> None:
    write(folder, "Mine", "Hers")
    assert "defines 2 recipes, not one: Mine, Hers" in refusal("mine.py")
    write(folder, file="empty.py")
    assert "defines 0 recipes" in refusal("empty.py")


def test_siblings_of_the_file_can_be_imported(folder: Path) -> None:
    (folder / "sibling_of_mine.py").write_text("WIDTH = 9\n")
    write(folder, "Mine", tail="from sibling_of_mine import WIDTH\n")
    assert load_recipe("mine.py:Mine", {}) is not None


def test_a_recipe_survives_pickling_and_its_module_is_found_by_name(folder: Path) -> None:
    write(folder, "Mine")
    recipe = load_recipe("mine.py:Mine", {"width": 7})
    assert pickle.loads(pickle.dumps(recipe)).width == 7
    # A spawned worker gets sys.path and imports the module anew.
    found = PathFinder.find_spec("mine", sys.path)
    assert found is not None and found.origin == str(folder / "mine.py")


@pytest.mark.slow
def test_its_data_reaches_a_spawned_worker(folder: Path) -> None:
    data = """
class Data:
    def __len__(self): return 4
    def __getitem__(self, index): return index
"""
    write(folder, "Mine", tail=data)
    load_recipe("mine.py:Mine", {})
    data_set = sys.modules["mine"].Data()
    loader: DataLoader[int] = DataLoader(data_set, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_the_same_file_is_run_once_and_another_of_its_name_replaces_it(folder: Path) -> None:
    for place in (folder / "a", folder / "b"):
        place.mkdir()
        write(place, "Mine")
    first, again = load_recipe("a/mine.py:Mine", {}), load_recipe("a/mine.py:Mine", {})
    assert type(first) is type(again)
    assert type(load_recipe("b/mine.py:Mine", {})) is not type(first)


def test_a_file_with_the_name_of_another_module_is_refused(folder: Path) -> None:
    write(folder, "Mine", file="json.py")
    import json

    message = refusal("json.py:Mine")
    assert "'json'" in message and "my_json.py" in message
    assert sys.modules["json"] is json


def test_a_class_that_is_no_recipe_is_told_what_it_lacks(folder: Path) -> None:
    (folder / "mine.py").write_text("class Mine:\n    def model(self): ...\nNumber = 3\n")
    assert "is not a Recipe, and lacks loss, train_data" in refusal("mine.py:Mine")
    assert "not a class but int" in refusal("mine.py:Number")


def test_an_unfinished_recipe_is_told_what_it_lacks(folder: Path) -> None:
    (folder / "mine.py").write_text(HEAD + "class Mine(Recipe):\n    def model(self): ...\n")
    assert "the recipe Mine does not define loss, train_data" in refusal("mine.py:Mine")


def test_a_class_that_only_running_shows_to_be_missing(folder: Path) -> None:
    write(folder, "Mine", tail="from json import *\n")
    assert "did you mean recipe=mine.py:Mine?" in refusal("mine.py:Mime")


def test_an_exception_on_import_points_into_the_users_file(folder: Path) -> None:
    write(folder, "Mine", tail="import no_such_package_here\n")
    message = refusal("mine.py:Mine")
    assert "ModuleNotFoundError" in message and f"{folder}/mine.py:10: import no_such_package_here" in message
    assert "mine" not in sys.modules


def test_an_exit_on_import_is_no_exit_of_ours(folder: Path) -> None:
    write(folder, "Mine", tail="raise SystemExit(3)\n")
    assert "SystemExit: 3" in refusal("mine.py:Mine")


def test_a_syntax_error_in_a_sibling_is_shown_with_its_line(folder: Path) -> None:
    (folder / "sibling_of_mine.py").write_text("x = = 1\n")
    write(folder, "Mine", tail="import sibling_of_mine\n")
    assert f"{folder}/sibling_of_mine.py:1" in refusal("mine.py:Mine")


def test_an_exception_of_the_constructor_points_into_the_users_file(folder: Path) -> None:
    init = "\nclass Bad(Recipe):\n    def __init__(self, n: int = 1):\n        nn.Linear(n, 'x')\n"
    methods = "    def model(self): ...\n    def train_data(self): ...\n    def loss(self, model, batch): ...\n"
    write(folder, tail=init + methods)
    message = refusal("mine.py:Bad")
    assert "Bad(...) raised TypeError" in message and f"{folder}/mine.py:6: nn.Linear(n, 'x')" in message


def test_a_users_own_refusal_is_passed_on_as_it_is(folder: Path) -> None:
    tail = "\nfrom lockstep.core.errors import UserError\nraise UserError('no data here')\n"
    write(folder, "Mine", tail=tail)
    assert refusal("mine.py:Mine") == "no data here"
