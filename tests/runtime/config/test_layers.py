from typing import Any

import pytest

from lockstep.runtime.config.layers import SourceError, overlay, override_layer, yaml_layer


def problem_of(data: str | bytes) -> str:
    with pytest.raises(SourceError) as caught:
        yaml_layer(data if isinstance(data, bytes) else data.encode(), "c.yaml")
    return "\n".join(f"{problem.seen} | {problem.where} | {problem.next_step}" for problem in caught.value.problems)


def test_values_and_their_lines() -> None:
    layer = yaml_layer(b"seed: 3\noptim:\n  lr: 1e-3\n  betas: [0.8, 0.9]\noptions: {a: {b: on}}\n", "c.yaml")
    assert layer.values == {
        "seed": 3,
        "optim": {"lr": 1e-3, "betas": [0.8, 0.9]},
        "options": {"a": {"b": True}},
    }
    assert layer.places["seed"] == "c.yaml, line 1"
    assert layer.places["optim"] == "c.yaml, line 2"
    assert layer.places["optim.betas"] == "c.yaml, line 4"
    assert layer.places["options.a.b"] == "c.yaml, line 5"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "\ufeffseed: 3\n", "optim:\n  # lr: 3\noptions:\n"])
def test_little_is_fine(text: str) -> None:
    assert yaml_layer(text.encode(), "c.yaml").values in ({}, {"seed": 3})


def test_anchors_and_merge_keys() -> None:
    text = b"options:\n  base: &base {a: 1}\n  one: {<<: *base, b: 2}\n  two: {<<: *base}\n"
    assert yaml_layer(text, "c.yaml").values["options"]["one"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("optim: {lr: 1\n", ["not valid YAML", "c.yaml, line 2, column 1", "needs quotes"]),
        ("a: 1\n\tb: 2", ["not valid YAML", "line 2", "tabs"]),
        ("a: 'x", ["not valid YAML", "quoted"]),
        ("a: @x", ["not valid YAML", "line 1, column 4", "`a: @x`"]),
        ("ok: 1\nx: \x07", ["0x0007", "line 2, column 4"]),
        ("a: 1\n---\nb: 2", ["not valid YAML", "another document", "line 2"]),
        ("a: *b", ["not valid YAML", "alias", "line 1"]),
        ("a: &x {b: *x}", ["not valid YAML", "recursive"]),
        ("seed: !!python/object:os.x {}", ["not valid YAML", "constructor", "line 1, column 7"]),
        ("x: " + "[" * 1000, ["nested too deeply"]),
        ("seed: " + "9" * 5000, ["not valid YAML", "4300 digits"]),
        (b"a: 1\nb: \xff\n", ["not UTF-8", "0xff", "line 2", "save the file as UTF-8"]),
        ("a: 1".encode("utf-16"), ["not UTF-8"]),
        ("- 1\n- 2", ["holds a list"]),
        ("word", ["holds a single value"]),
        ("a: 1\na: 2", ["a is given twice", "line 1 and line 2"]),
        ("optim:\n  lr: 1\n  lr: 2\nseed: 1\nseed: 2", ["optim.lr is given twice", "seed is given twice"]),
        ("null: 3", ["cannot be read", "NoneType"]),
        ("? [1, 2]\n: 3", ["unhashable"]),
        ("seed: !!set {a}", ["seed cannot be read", "line 1"]),
        ("1: {null: 1}", ["1 cannot be read", "line 1"]),
        ("optim:\n  lr: ${x", ["optim.lr cannot be read", "line 2", r"write \${"]),
    ],
)
def test_a_file_that_cannot_be_read(data: str | bytes, words: list[str]) -> None:
    message = problem_of(data)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["optim.lr=3e-4"], {"optim": {"lr": 3e-4}}),
        (["optim.lr=1", "optim.lr=2", "seed=3"], {"optim": {"lr": 2}, "seed": 3}),
        (["run.dir=null"], {"run": {"dir": None}}),
        (["run.dir=''"], {"run": {"dir": ""}}),
        ([" seed = 3"], {"seed": 3}),
        (["options.x=a=b"], {"options": {"x": "a=b"}}),
        (["options={a: 1}", "options.b=[1, x]"], {"options": {"a": 1, "b": [1, "x"]}}),
        (["options.x=${seed}"], {"options": {"x": "${seed}"}}),
        (["optim=3", "optim.lr=1"], {"optim": {"lr": 1}}),
    ],
)
def test_overrides(words: list[str], values: dict[str, object]) -> None:
    layer, problems = override_layer(words)
    assert (layer.values, problems) == (values, [])


def test_the_place_of_an_override_is_its_word() -> None:
    layer, _ = override_layer(["optim.lr=1", "optim.lr=2"])
    assert layer.places["optim.lr"] == "override `optim.lr=2`"


@pytest.mark.parametrize(
    ("word", "seen", "step"),
    [
        ("optim.lr", "has no `=`", "optim.lr=VALUE"),
        ("my.yaml", "has no `=`", "one CONFIG file"),
        ("=3", "empty key", ""),
        ("  =3", "empty key", ""),
        ("optim.lr=", "has no value", "optim.lr=null"),
        ("--optim.lr=3", "begins with `-`", "optim.lr=3"),
        ("+optim.lr=3", "begins with `+`", "optim.lr=3"),
        ("optim..lr=3", "empty part", ""),
        (".lr=3", "empty part", ""),
        ("optim.=3", "empty part", ""),
        ("optim. lr=3", "empty part", ""),
        ("optim.betas=[0.9", "not valid YAML", "quotes"),
        ("options.x=${", "not valid YAML", "quotes"),
        ("options.x=@a", "not valid YAML", "quotes"),
        ("seed=" + "9" * 5000, "not valid YAML", "quotes"),
        ("--help", "begins with `-`", ""),
    ],
)
def test_a_word_that_is_no_override(word: str, seen: str, step: str) -> None:
    layer, problems = override_layer([word, "seed=3"])
    [problem] = problems
    assert seen in problem.seen
    assert f"`{word}`" in problem.seen
    assert "KEY=VALUE" in problem.must
    assert step in problem.next_step
    assert layer.values == {"seed": 3}


def test_overlay() -> None:
    under = {"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 3}
    over = {"a": {"b": None}, "d": [3], "e": {"f": 4}}
    assert overlay(under, over) == {"a": {"b": None, "c": 2}, "d": [3], "e": {"f": 4}}
    assert under["a"] == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("text", "words", "values", "place"),
    [
        (b"precision: bf16", [], {"name": "bf16"}, "it, line 1"),
        (b"precision: bf16", ["precision.fp32_modules=[a]"], {"name": "bf16", "fp32_modules": ["a"]}, "it, line 1"),
        (
            b"precision:\n  fp32_modules: [a]\n  name: fp16",
            ["precision=bf16"],
            {"name": "bf16", "fp32_modules": ["a"]},
            "override `precision=bf16`",
        ),
        (
            b"",
            ["precision.fp32_modules=[a]", "precision=bf16"],
            {"name": "bf16", "fp32_modules": ["a"]},
            "override `precision=bf16`",
        ),
        (b"precision: 16", [], {"name": 16}, "it, line 1"),
        (b"precision:", ["precision=fp32"], {"name": "fp32"}, "override `precision=fp32`"),
    ],
)
def test_one_value_stands_for_a_key_of_its_section(text: bytes, words: list[str], values: Any, place: str) -> None:
    file, (cli, problems) = yaml_layer(text, "it"), override_layer(words)
    assert problems == []
    assert overlay(file.values, cli.values)["precision"] == values
    assert {**file.places, **cli.places}["precision.name"] == place
