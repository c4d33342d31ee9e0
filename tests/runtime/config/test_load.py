from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.config import Config, dump_config, load_config

from .conftest import Load, Refusal


def test_nothing_given_is_the_default(load: Load) -> None:
    assert load(None) == load("") == Config()


def test_order_of_the_layers(load: Load, no_recipe_defaults: Path) -> None:
    packaged = "optim: {lr: 0.1, momentum: 0.1, weight_decay: 0.1}\noptions: {size: 1, depth: 1}\n"
    (no_recipe_defaults / "tiny.yaml").write_text(packaged)
    config = load("recipe: tiny\noptim: {lr: 0.2, momentum: 0.2}\noptions: {size: 2}", "optim.lr=0.3")
    assert (config.optim.lr, config.optim.momentum, config.optim.weight_decay) == (0.3, 0.2, 0.1)
    assert config.optim.name == "adamw"
    assert config.options == {"size": 2, "depth": 1}


def test_which_recipe_gives_the_defaults(load: Load, no_recipe_defaults: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in enumerate(("digit_scenes", "one", "two"), start=1):
        (no_recipe_defaults / f"{name}.yaml").write_text(f"seed: {seed}")
    (no_recipe_defaults / "mine.yaml").write_text("seed: 9")
    monkeypatch.setenv("RECIPE_OF_TEST", "one")
    assert load(None).seed == 1
    assert load("recipe: one").seed == 2
    assert load("recipe: one", "recipe=two").seed == 3
    assert load("recipe: ${oc.env:RECIPE_OF_TEST}").seed == 2
    assert load(None, "recipe=mine.py:Net").seed == 0
    assert load(None, "recipe=unknown").seed == 0


def test_wrong_recipe_defaults_are_named(refusal: Refusal, no_recipe_defaults: Path) -> None:
    (no_recipe_defaults / "one.yaml").write_text("\noptim: {lr: fast}")
    assert "Where: defaults of recipe one, line 2" in refusal(None, "recipe=one")
    (no_recipe_defaults / "one.yaml").write_text("optim: {")
    assert "defaults of recipe one is not valid YAML" in refusal(None, "recipe=one")


@pytest.mark.parametrize("recipe", ["3", "null", "[a]", "../one", "${nope}"])
def test_a_recipe_that_is_no_name_has_no_defaults(refusal: Refusal, load: Load, recipe: str) -> None:
    if recipe == "../one":
        assert load(None, f"recipe={recipe}").recipe == recipe
    else:
        assert "recipe " in refusal(None, f"recipe={recipe}")


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("batch: {global_batch: 8}", ["batch.per_rank=4"], (None, 4, None, None)),
        ("batch: {per_rank: 4}", ["batch.global_batch=8"], (8, None, None, None)),
        ("batch: {per_rank: 4}", ["batch.per_rank=null"], (16, None, None, None)),
        ("batch: {accumulation: 2}", ["batch.micro_batch=4"], (16, None, None, 4)),
        ("batch: {micro_batch: 4}", ["batch.accumulation=2"], (16, None, 2, None)),
        ("", ["batch.per_rank=4", "batch.accumulation=2"], (None, 4, 2, None)),
    ],
)
def test_a_later_layer_takes_the_alternative_back(load: Load, text: str, words: list[str], expected: Any) -> None:
    batch = load(text, *words).batch
    assert (batch.global_batch, batch.per_rank, batch.accumulation, batch.micro_batch) == expected


@pytest.mark.parametrize("text", [None, "batch: {global_batch: 8, per_rank: 4}"])
def test_both_alternatives_in_one_place_are_refused(refusal: Refusal, text: str | None) -> None:
    words = [] if text else ["batch.global_batch=8", "batch.per_rank=4"]
    message = refusal(text, *words)
    assert "batch.global_batch is 8 and batch.per_rank is 4" in message
    assert "only one of them" in message


def test_switches_of_yaml(load: Load) -> None:
    config = load("parallel: {find_unused: on, broadcast_buffers: off}", "log.progress=off", "log.tensorboard=auto")
    assert (config.parallel.find_unused, config.parallel.broadcast_buffers) == ("on", "off")
    assert (config.log.progress, config.log.tensorboard) == ("off", "auto")


def test_interpolation(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME_OF_TEST", "here")
    text = r"""
optim: {lr: 0.5}
options:
  rate: ${optim.lr}
  batch: ${batch.global_batch}
  optim: ${optim}
  list: ["${seed}", 1]
  plain: 'a \${x} b'
run: {dir: "runs/${oc.env:NAME_OF_TEST}"}
"""
    config = load(text, "optim.lr=0.25")
    assert (config.options["rate"], config.options["batch"], config.options["list"]) == (0.25, 16, [0, 1])
    assert config.options["optim"]["betas"] == [0.9, 0.999]
    assert config.options["plain"] == "a ${x} b"
    assert config.run.dir == "runs/here"


def test_interpolations_that_lead_nowhere(refusal: Refusal) -> None:
    text = "seed: ${nope}\nrun: {dir: '${oc.env:NOT_SET_HERE}'}\ninit_from: ???\noptim: {lr: '${optim.lr}'}"
    message = refusal(text + "\noptions: {a: '${options}'}\nbest: {metric: '${foo:1}'}\nstop: {patience: 3}")
    assert "The config has 6 problems" in message  # nothing about stop.patience: best.metric is not known
    for words in (
        "seed cannot be resolved",
        "NOT_SET_HERE",
        "init_from is ???",
        "optim.lr cannot",
        "best.metric cannot",
    ):
        assert words in message
    assert "line 1" in message
    assert "options.a cannot be resolved" in message


def test_file_mistakes_come_with_those_of_the_overrides(refusal: Refusal) -> None:
    message = refusal("optim: {", "oops")
    assert "The config has 2 problems" in message
    assert "not valid YAML" in message
    assert "`oops`" in message


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, [])
    return str(caught.value)


def test_config_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("")
    message = refused(tmp_path / "trian.yaml")
    assert "does not exist" in message
    assert f"did you mean {tmp_path / 'train.yaml'}?" in message
    assert "check the path" in refused(tmp_path / "no" / "x.yaml")
    assert "cannot be read" in refused(tmp_path / "train.yaml" / "x.yaml")


def test_a_key_without_a_value_is_no_file() -> None:
    assert "`optim.lr` is a key of the config without a value" in refused(Path("optim.lr"))
    assert "does not exist" in refused(Path("optim.yaml"))


def test_config_that_is_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "config.yaml").write_text("")
    assert f"give the file: {tmp_path / 'config.yaml'}" in refused(tmp_path)


def test_config_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "config.yaml"
    path.touch()
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert "cannot be read: Permission denied" in refused(path)


def test_recipe_file_beside_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, here = tmp_path / "project", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    config = folder / "c.yaml"
    config.write_text("recipe: mine.py:Net")
    assert load_config(config, []).recipe == "mine.py:Net"  # nowhere: the recipe's loader says so
    (folder / "mine.py").touch()
    assert load_config(config, []).recipe == f"{folder / 'mine.py'}:Net"
    assert load_config(Path("../project/c.yaml"), []).recipe == "../project/mine.py:Net"
    assert load_config(config, ["recipe=mine.py:Other"]).recipe == "mine.py:Other"
    assert load_config(config, ["recipe=mine.py:Net"]).recipe == "mine.py:Net"
    (here / "mine.py").touch()
    assert load_config(config, []).recipe == "mine.py:Net"


ODD_TEXTS = ["on", "null", "~", "1e-3", "1_0", "0x1", "2024-01-02", "1:30", "", " x ", "é\n", "a: b", "#", "- a", "{"]
ODD_TEXTS += ["${x}", "\\${x}", "a\\\\${x}\\", "${", "$", "\\", "'", '"', "\t", "\x07", "\u2028", "=", "<<", "@", "??"]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"batch": {"per_rank": 4}},
        {"batch": {"global_batch": 7, "micro_batch": 3}},
        {"optim": {"betas": [0, 0.5], "lr": 1, "clip_norm": 1e-12}},
        {"log": {"progress": "on", "tensorboard": "off"}, "run": {"dir": "on", "threads": 3}},
        {"options": {"texts": ODD_TEXTS, "numbers": [1, -1.5, 1e300, float("inf")], "others": [None, True, {}, []]}},
        {"options": dict.fromkeys(("on", "1", "a.b", ""), 1)},
        {"options": {"deep": {"1": {1: {"a": [[{"b": None}]]}}}}},
    ],
)
def test_round_trip(load: Load, values: dict[str, Any]) -> None:
    config = Config.model_validate(values)
    assert load(dump_config(config)) == config


def test_a_complete_file_stands_for_itself(load: Load, no_recipe_defaults: Path) -> None:
    (no_recipe_defaults / "digit_scenes.yaml").write_text("options: {new: 1}\nseed: 5")
    config = Config(options={"old": 1})
    assert load(dump_config(config)) == config
    assert load(dump_config(config), "seed=7").seed == 7
    assert load("options: {old: 1}").options == {"old": 1, "new": 1}
