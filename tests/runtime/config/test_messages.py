import pytest

from lockstep.runtime.config.messages import Sources, field_problems

from .conftest import Refusal


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("lr=3", ["lr does not exist", "did you mean optim.lr?", "override `lr=3`"]),
        ("optim.lrr=3", ["optim.lrr does not exist", "did you mean optim.lr?", "the keys of optim are name, lr"]),
        ("optimizer.lr=3", ["optimizer.lr does not exist", "did you mean optim.lr?"]),
        ("loging=3", ["loging does not exist", "did you mean the section log"]),
        ("zzz=3", ["zzz does not exist", "options.zzz", "SECTION.KEY"]),
        ("zzz={}", ["zzz does not exist"]),
        ("every_steps=3", ["evaluate.every_steps, checkpoint.every_steps or log.every_steps"]),
        ("world_size=4", ["world_size does not exist", "number of ranks", "--nproc"]),
        ("run.nproc=4", ["run.nproc does not exist", "number of ranks", "--nproc"]),
        ("optim.name=adamm", ['optim.name is "adamm"', "`adamw`, `adam` or `sgd`", "did you mean adam"]),
        ("precision=float16", ['precision.name is "float16"', "did you mean fp16?"]),
        ("precision=16", ["precision.name is 16 (a whole number)", "`fp32`"]),
        ("precision=[bf16]", ["precision is", "a section with the keys name, fp32_modules"]),
        ("precision.fp32_modules=head", ['precision.fp32_modules is "head" (text)', "a list, each text"]),
        ("ema.decay=1", ["ema.decay is 1", "below 1"]),
        ("optim.lr='3e-4'", ['optim.lr is "3e-4" (text)', "a number above 0", "without quotes"]),
        ("optim.lr=true", ["optim.lr is true (a truth value)", "a number above 0"]),
        ("optim.lr=-1", ["optim.lr is -1", "a number above 0"]),
        ("optim.lr=.nan", ["optim.lr is NaN", "a number above 0"]),
        ("optim.lr=null", ["optim.lr is null", "a number above 0"]),
        ("optim.lr={a: 1}", ["optim.lr is", "(a mapping)", "a number above 0"]),
        ("seed=4.0", ["seed is 4.0 (a number)", "a whole number", "did you mean 4?"]),
        ("seed='4'", ['seed is "4" (text)', "did you mean 4 without quotes?"]),
        ("seed=true", ["seed is true (a truth value)", "a whole number"]),
        ("stop.epochs=0", ["stop.epochs is 0", "of at least 1"]),
        ("stop.epochs=null", ["stop.epochs is null", "of at least 1"]),
        ("run.threads=many", ['run.threads is "many"', "`auto` or a whole number of at least 1"]),
        ("run.dir=2024", ["run.dir is 2024", "text or `null`", '"2024" in quotes']),
        ("run.device=gpu", ["`auto`, `cpu` or `cuda`", "did you mean cuda?"]),
        ("parallel.find_unused=maybe", ["`auto`, `on` or `off`"]),
        ("optim.betas=[0.9]", ["optim.betas is [0.9] (a list)", "a list of 2"]),
        ("optim.betas=[0.9,2]", ["optim.betas is [0.9, 2]", "below 1"]),
        ("optim.betas.0=0.8", ["optim.betas is", "a list of 2"]),
        ("optim=adam", ['optim is "adam" (text)', "a section with the keys name, lr", "did you mean optim.name?"]),
        ("optim=null", ["optim is null", "a section"]),
        ("data=x", ['data is "x"', "a section with the keys workers"]),
        ("options=3", ["options is 3", "a mapping of names to values"]),
        ("options={1: 2}", ["options is", "option names are text"]),
        ("options.x=!!binary aGVsbG8=", ["options is", "values are null, true or false, numbers, text"]),
        ("optim.lr_scaling=null", ["optim.lr_scaling is null", "did you mean none?"]),
        ("optim.clip_norm=none", ["did you mean null?"]),
        ("batch.global_batch=0", ["batch.global_batch is 0", "of at least 1"]),
        ("batch.global_batch=false", ["batch.global_batch is false", "of at least 1"]),
    ],
)
def test_one_mistake(refusal: Refusal, word: str, words: list[str]) -> None:
    message = refusal(None, word)
    assert all(part in message for part in words), message
    assert "problems" not in message
    assert f"Where: override `{word}`" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1\noptim.lr: 3", ["optim.lr does not exist", "optim: {lr: ...}", "line 2"]),
        ("optim:\n  on: 3", ["optim.true is a key that is a truth value", "quote", "line 2"]),
        ("3: 3", ["3 is a key that is a whole number", "line 1"]),
        ("scheduler:\n  warmup_steps: 3\n  nam: x", ["schedule.warmup_steps?", "line 2", "schedule.name?", "line 3"]),
        ("options: {1: 2}", ["options is", "option names are text"]),
    ],
)
def test_mistakes_in_a_file(refusal: Refusal, text: str, words: list[str]) -> None:
    message = refusal(text)
    assert all(part in message for part in words), message


def test_all_at_once(refusal: Refusal) -> None:
    text = """
optim: {lr: fast, nesterov: true, momentm: 0.5}
batch: {global_batch: 4, accumulation: 8}
colour: red
"""
    message = refusal(text, "optim.name=sgdd", "stop.patience=3", "oops", "seed=-1")
    assert message.startswith("The config has 8 problems.\n\n")
    blocks = message.split("\n\n")[1:]
    subjects = [block.split(" ")[0] for block in blocks]
    assert sorted(subjects) == [
        "batch.accumulation",
        "colour",
        "optim.lr",
        "optim.momentm",
        "optim.name",
        "override",
        "seed",
        "stop.patience",
    ]  # nesterov is not judged: whether it may be depends on the name, which is wrong


def test_a_misspelt_key_has_no_follow_up(refusal: Refusal) -> None:
    message = refusal("optim: {lr_scaling: linear}\nbatch: {refrence: 16}")
    assert "batch.reference?" in message
    assert "lr_scaling" not in message


def test_a_wrong_section_has_no_follow_up() -> None:
    problems = field_problems({"best": 3, "stop": {"patience": 3}})
    assert [problem.paths for problem in problems] == [("best",)]


def test_both_sides_of_a_combination_have_their_place(refusal: Refusal) -> None:
    message = refusal("schedule:\n  total_steps: 10", "schedule.warmup_steps=20")
    assert "schedule.warmup_steps is 20 and schedule.total_steps is 10" in message
    assert "schedule.warmup_steps in override `schedule.warmup_steps=20`; schedule.total_steps in " in message
    assert "config.yaml, line 2" in message


def test_sources() -> None:
    sources = Sources([{"a": "file, line 1", "b": "file, line 2"}, {"a": "override `a=1`"}])
    assert [sources.of(path) for path in ("a", "b", "c")] == ["override `a=1`", "file, line 2", ""]
    assert sources.say(["a", "c"]) == "override `a=1`"
    assert sources.say(["a", "b"]) == "a in override `a=1`; b in file, line 2"
    assert sources.say(["c"]) == ""
