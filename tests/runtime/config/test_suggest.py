import pytest

from lockstep.runtime.config.fields import fields
from lockstep.runtime.config.suggest import KEY_ALIASES, RANK_KEYS, VALUE_ALIASES, similar_keys, similar_section
from lockstep.runtime.config.suggest import similar_value as guess


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("lr", ["optim.lr"]),
        ("batch.lr", ["optim.lr"]),
        ("optim.lrr", ["optim.lr"]),
        ("optim.weight-decay", ["optim.weight_decay"]),
        ("optimizer.lr", ["optim.lr"]),
        ("optimizer.nam", ["optim.name"]),
        ("scheduler.warmup_step", ["schedule.warmup_steps"]),
        ("batch.refrence", ["batch.reference"]),
        ("every_steps", ["evaluate.every_steps", "checkpoint.every_steps", "log.every_steps"]),
        ("every_step", ["evaluate.every_steps", "checkpoint.every_steps", "log.every_steps"]),
        ("sed", ["seed"]),
        ("epochs", ["stop.epochs"]),
        ("batch_size", ["batch.global_batch"]),
        ("train.batch_size", ["batch.global_batch"]),
        ("Learning-Rate", ["optim.lr"]),
        ("zzz", []),
        ("zzz.qqq", []),
    ],
)
def test_keys(path: str, names: list[str]) -> None:
    assert similar_keys(tuple(path.split("."))) == names


@pytest.mark.parametrize(
    ("name", "section"),
    [("optimizer", "optim"), ("logging", "log"), ("scheduler", "schedule"), ("evaluation", "evaluate"), ("zzz", None)],
)
def test_sections(name: str, section: str | None) -> None:
    assert similar_section(name) == section


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("schedule.name", "cosin", "cosine"),
        ("schedule.name", "COSINE", "cosine"),
        ("schedule.name", "zzz", None),
        ("precision.name", "float16", "fp16"),
        ("precision.name", "bfloat16", "bf16"),
        ("run.device", "gpu", "cuda"),
        ("optim.lr_scaling", None, "none"),
        ("optim.clip_norm", "none", "null"),
        ("optim.lr", "3e-4", "3e-4 without quotes"),
        ("optim.lr", "fast", None),
        ("seed", 1e4, "10000"),
        ("seed", 1.5, None),
        ("run.dir", 2024, '"2024" in quotes'),
        ("run.dir", True, None),
        ("log.progress", "true", "on"),
    ],
)
def test_values(name: str, value: object, meant: str | None) -> None:
    assert guess(fields()[name], value) == meant


def test_aliases_lead_somewhere() -> None:
    assert set(KEY_ALIASES.values()) <= set(fields())
    choices = {choice for field in fields().values() for choice in field.choices}
    assert set(VALUE_ALIASES.values()) <= choices
    leaf_names = {name.rpartition(".")[2] for name in fields()}
    assert not leaf_names & (set(KEY_ALIASES) | RANK_KEYS)
