import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.recipes import BUILTIN
from lockstep.recipes.names import check_recipe_name, locate

RECIPE = "from base import Recipe\nclass Mine(Recipe):\n    pass\n"


def refusal(name: str, folder: Path | None = None) -> str:
    with pytest.raises(UserError) as caught:
        check_recipe_name(name, folder)
    return str(caught.value)


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_names_are_known(name: str) -> None:
    check_recipe_name(name)


def test_every_built_in_recipe_has_its_defaults_beside_it() -> None:
    package = Path(sys.modules["lockstep.recipes"].__file__ or "").parent
    assert {path.stem for path in package.glob("*.yaml")} == set(BUILTIN)


@pytest.mark.parametrize("name", ["digit_scene", "Points"])
def test_an_unknown_name_is_answered_with_a_guess(name: str) -> None:
    message = refusal(name)
    assert "built in are digit_scenes, docstrings" in message and "did you mean recipe=" in message


def test_a_name_like_nothing_is_answered_with_the_forms() -> None:
    assert "path/to/file.py:Class" in refusal("resnet50")
    assert "path.py:Class" in refusal("package.module:Class")


def test_a_file_with_its_class_passes(folder: Path) -> None:
    (folder / "mine.py").write_text(RECIPE)
    check_recipe_name("mine.py:Mine")
    check_recipe_name("mine.py")
    check_recipe_name(f"{folder}/mine.py:Mine")


def test_a_path_is_looked_up_beside_the_config_first(folder: Path) -> None:
    for place in (folder, folder / "configs"):
        place.mkdir(exist_ok=True)
        (place / "mine.py").write_text(RECIPE)
    assert locate("mine.py:Mine", folder / "configs").path == (folder / "configs" / "mine.py").resolve()
    assert locate("mine.py:Mine", folder / "elsewhere").path == (folder / "mine.py").resolve()


def test_a_missing_file_is_named_with_where_it_was_looked_for(folder: Path) -> None:
    (folder / "mine.py").write_text(RECIPE)
    message = refusal("mine2.py:Mine", folder / "configs")
    assert str(folder / "mine2.py") in message and str(folder / "configs" / "mine2.py") in message
    assert "did you mean" in refusal("mien.py:Mine")


def test_a_syntax_error_is_shown_with_its_line(folder: Path) -> None:
    (folder / "mine.py").write_text("import torch\ndef f(:\n    pass\n")
    message = refusal("mine.py:Mine")
    assert f"{folder}/mine.py:2" in message and "def f(:" in message


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\0\n"])
def test_a_file_that_is_no_text_is_refused(folder: Path, content: bytes) -> None:
    (folder / "mine.py").write_bytes(content)
    assert "mine.py" in refusal("mine.py:Mine")


def test_a_class_that_is_not_there_is_answered_with_those_that_are(folder: Path) -> None:
    (folder / "mine.py").write_text(RECIPE)
    message = refusal("mine.py:Mime")
    assert "it defines Mine" in message and "did you mean recipe=mine.py:Mine?" in message
    (folder / "empty.py").write_text("")
    assert "it defines no class" in refusal("empty.py:Mine")


@pytest.mark.parametrize(
    "source",
    [
        "from other import Mine",
        "from other import Hers as Mine",
        "from other import *",
        "Mine = make()",
        "if True:\n    class Mine: pass",
        "try:\n    from a import Mine\nexcept ImportError:\n    Mine = None",
    ],
)
def test_what_only_running_the_file_can_tell_is_let_through(folder: Path, source: str) -> None:
    (folder / "mine.py").write_text(source)
    check_recipe_name("mine.py:Mine")


def test_names_inside_functions_are_not_the_modules(folder: Path) -> None:
    (folder / "mine.py").write_text("def f():\n    class Mine: pass\n    Mine2 = 1\n")
    assert "no class 'Mine'" in refusal("mine.py:Mine")
    assert "no class 'Mine2'" in refusal("mine.py:Mine2")


@pytest.mark.parametrize("name", ["my-recipe.py", "2nd.py"])
def test_a_file_that_cannot_be_imported_by_name_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text(RECIPE)
    assert "rename the file" in refusal(f"{name}:Mine")


def test_neither_torch_nor_the_users_file_is_imported(folder: Path) -> None:
    (folder / "mine.py").write_text("raise SystemExit('was run')\nclass Mine: pass\n")
    code = (
        "import sys; from lockstep.recipes.resolve import check_recipe_name as check; "
        "check('mine.py:Mine'); check('points'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, timeout=60)


def test_recipes_are_named_before_other_classes(tmp_path: Path) -> None:
    more = "class Data:\n    pass\n\nclass Second(Mine):\n    pass\n"
    (tmp_path / "many.py").write_text("class First:\n    pass\n\n" + RECIPE + more)
    assert "it defines Mine, Second, First, Data" in refusal("many.py:Nope", tmp_path)
