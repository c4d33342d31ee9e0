"""Did you mean: from a key or a value that does not exist to one that does."""

from difflib import get_close_matches

from lockstep.runtime.config.fields import FieldDoc, fields, sections
from lockstep.runtime.config.problem import KeyPath

# Names that other trainers use, by what they are here.
KEY_ALIASES = {
    "batch_size": "batch.global_batch",
    "global_batch_size": "batch.global_batch",
    "per_device_train_batch_size": "batch.per_rank",
    "batch_per_rank": "batch.per_rank",
    "micro_batch_size": "batch.micro_batch",
    "accumulate_grad_batches": "batch.accumulation",
    "gradient_accumulation_steps": "batch.accumulation",
    "grad_accum": "batch.accumulation",
    "learning_rate": "optim.lr",
    "optimizer": "optim.name",
    "scheduler": "schedule.name",
    "lr_scheduler": "schedule.name",
    "warmup": "schedule.warmup_steps",
    "num_epochs": "stop.epochs",
    "max_epochs": "stop.epochs",
    "num_steps": "stop.max_steps",
    "early_stopping": "stop.patience",
    "num_workers": "data.workers",
    "grad_clip": "optim.clip_norm",
    "max_grad_norm": "optim.clip_norm",
    "gradient_clip_val": "optim.clip_norm",
    "amp": "precision.name",
    "dtype": "precision.name",
    "mixed_precision": "precision.name",
    "output_dir": "run.dir",
    "out_dir": "run.dir",
    "model": "recipe",
    "sync_bn": "parallel.sync_batchnorm",
    "find_unused_parameters": "parallel.find_unused",
    "random_seed": "seed",
}
VALUE_ALIASES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "full": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "gpu": "cuda",
    "maximize": "max",
    "minimize": "min",
    "true": "on",
    "false": "off",
}
RANK_KEYS = frozenset(
    (
        "world_size",
        "num_ranks",
        "ranks",
        "nproc",
        "nproc_per_node",
        "num_gpus",
        "gpus",
        "devices",
        "nnodes",
        "num_nodes",
    )
)
CLOSE = 0.7


def similar_keys(path: KeyPath) -> list[str]:
    """Dotted paths of existing fields that an unknown path may have meant, the likeliest kind only."""
    path = tuple(".".join(path).split("."))  # a file may have `optim.lr` as one key
    key = path[-1].replace("-", "_").lower()
    section = similar_section(path[0]) if len(path) > 1 else None
    inside = [name for name in fields() if section and name.startswith(f"{section}.")]
    by_key = {name.partition(".")[2]: name for name in inside}
    elsewhere = [name for name in fields() if name.rpartition(".")[2] == key]
    if key in by_key:
        return [by_key[key]]
    if elsewhere:
        return elsewhere
    if key in KEY_ALIASES:
        return [KEY_ALIASES[key]]
    if near := get_close_matches(key, by_key, n=1, cutoff=0.6):
        return [by_key[near[0]]]
    leaf_names = {name.rpartition(".")[2] for name in fields()}
    near = get_close_matches(key, sorted(leaf_names), n=1, cutoff=CLOSE)
    return [name for name in fields() if near and name.rpartition(".")[2] == near[0]]


def similar_section(name: str) -> str | None:
    """The section that a name is, or nearly is: `optimizer` for optim."""
    near = get_close_matches(name.lower(), sections(), n=1, cutoff=0.6)
    return near[0] if near else None


def similar_value(field: FieldDoc, value: object) -> str | None:
    """What may have been meant by a value that a field does not allow; None where there is no guess."""
    if value is None and "none" in field.choices:
        return "none"
    if isinstance(value, str) and (guess := _similar_text(field, value.strip())):
        return guess
    if isinstance(value, float) and value.is_integer() and "whole number" in field.allowed:
        return f"{value:.0f}"
    if isinstance(value, int | float) and not isinstance(value, bool) and field.allowed.startswith("text"):
        return f'"{value}" in quotes'
    return None


def _similar_text(field: FieldDoc, text: str) -> str | None:
    if VALUE_ALIASES.get(text.lower()) in field.choices:
        return VALUE_ALIASES[text.lower()]
    if near := get_close_matches(text.lower(), field.choices, n=1, cutoff=0.6):
        return near[0]
    if text.lower() in ("none", "nil") and "`null`" in field.allowed:
        return "null"
    return f"{text} without quotes" if "number" in field.allowed and _is_number(text) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def section_keys(section: str) -> str:
    """The keys of a section in one line."""
    return ", ".join(name.partition(".")[2] for name in fields() if name.startswith(f"{section}."))
