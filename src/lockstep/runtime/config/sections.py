"""The sections of the config that say what is trained, field by field: unit, default, the meaning of special values.

How it is computed stands in `machine.py`. The descriptions are the docs: `describe.py` makes docs/config.md of them.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from lockstep.runtime.config.section import Beta, Count, Section, Switch, Text, yaml_switch

DEFAULT_GLOBAL_BATCH = 16


class DataConfig(Section):
    """How samples reach a rank."""

    workers: Literal["auto"] | Annotated[int, Field(ge=0)] = Field(
        default="auto",
        description="Loader processes of each rank. 0: load in the training process. auto: 0 on a CPU, whose cores the "
        "ranks use; with GPUs, a rank's share of the cores less one, at most 8.",
    )
    prefetch: Count = Field(default=2, description="Batches that each worker prepares ahead. Unused with 0 workers.")
    shuffle: bool = Field(
        default=True, description="true: a new order each epoch, drawn from `seed`. false: the order of the data set."
    )
    bucket: Count | None = Field(
        default=None,
        description="Samples that follow one another because they are of like size, so that less is padded; the "
        "recipe's `sizes` tells it. About as many as a step has. null: the order has nothing to do with sizes.",
    )


class BatchConfig(Section):
    """How much makes an optimizer step. One of `global_batch`, `per_rank` and `global_targets` says it, for any number
    of ranks.

    Setting one of the three on the command line replaces another one from a file; so do `accumulation`,
    `micro_batch` and `micro_targets`. Two of them in one place are an error.
    """

    global_batch: Count | None = Field(
        default=DEFAULT_GLOBAL_BATCH,
        description="Samples of an optimizer step over all ranks; it need not divide by the number of ranks. "
        f"null: follows from `per_rank` or `global_targets`; {DEFAULT_GLOBAL_BATCH} where those are null too.",
    )
    per_rank: Count | None = Field(
        default=None,
        description="Samples of one rank in one micro-step; the global batch is then per_rank x ranks x accumulation. "
        "null: follows from `global_batch`.",
    )
    global_targets: Count | None = Field(
        default=None,
        description="Most targets (tokens, pixels: what the recipe's `sizes` counts) of an optimizer step over all "
        "ranks, in place of a number of samples; at least the largest sample x ranks. null: samples are counted.",
    )
    accumulation: Count | None = Field(
        default=None,
        description="Micro-steps (forward and backward) of an optimizer step. null: follows from `micro_batch`, "
        "1 where that is null too.",
    )
    micro_batch: Count | None = Field(
        default=None,
        description="Most samples of one rank in one forward, what the memory holds; `accumulation` follows from it. "
        "null: no limit.",
    )
    micro_targets: Count | None = Field(
        default=None,
        description="With `global_targets`: most targets of one rank in one forward, padding counted (longest x "
        "number), what the memory holds; the micro-steps follow from it. Twice the largest sample is always kept; "
        "less, down to once, may be exceeded by a pair of small samples. null: no limit.",
    )
    eval: Count = Field(default=16, description="Samples of an evaluation batch; whole batches are dealt to the ranks.")
    reference: Count | None = Field(
        default=None,
        description="Global batch (samples, or targets with `global_targets`) for which `optim.lr` was chosen; "
        "`optim.lr_scaling` starts from it. null: `optim.lr` is used as it is.",
    )

    @model_validator(mode="before")
    @classmethod
    def _some_batch(cls, values: Any) -> Any:
        """A size per rank leaves the global one open; with neither, the global one has its default."""
        if not isinstance(values, dict):
            return values
        if values.get("per_rank") is not None or values.get("global_targets") is not None:
            return {"global_batch": None, **values}
        if values.get("global_batch") is None:
            return {**values, "global_batch": DEFAULT_GLOBAL_BATCH}
        return values


class OptimConfig(Section):
    """The optimizer and its learning rate."""

    name: Literal["adamw", "adam", "sgd"] = Field(default="adamw", description="Optimizer of torch.")
    lr: float = Field(
        default=1e-3,
        gt=0,
        description="Peak learning rate, reached after the warm-up, at the global batch `batch.reference` if any.",
    )
    weight_decay: float = Field(
        default=0.01, ge=0, description="Weight decay, decoupled with adamw, an L2 term with adam and sgd. 0: none."
    )
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = Field(
        default=(0.9, 0.999), description="Decay of the two running means of adam and adamw, per step. Unused with sgd."
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Momentum of sgd; unused with the others. 0: none.")
    nesterov: bool = Field(default=False, description="Nesterov's form of the momentum; sgd only.")
    fused: bool = Field(
        default=True,
        description="true: torch's fused kernel where the device has one; same numbers to rounding, faster.",
    )
    clip_norm: float | None = Field(
        default=None,
        gt=0,
        description="Largest L2 norm of the whole gradient, all ranks together; a longer one is shortened. "
        "null: no clipping.",
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = Field(
        default="none",
        description="How the learning rate follows the ratio of the global batch to `batch.reference`. "
        "none: it does not.",
    )
    lr_cap: float = Field(
        default=2.0, ge=1, description="Largest factor that `lr_scaling` may give. 1: never a larger rate."
    )


class ScheduleConfig(Section):
    """The learning rate over the optimizer steps."""

    name: Literal["constant", "cosine", "linear", "poly", "step"] = Field(
        default="cosine", description="Shape of the decay after the warm-up."
    )
    warmup_steps: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Optimizer steps of linear warm-up from near 0 to the peak. 0: none."
    )
    total_steps: Count | None = Field(
        default=None,
        description="Optimizer steps until the decay ends, warm-up included. null: those of `stop.epochs` epochs.",
    )
    final_factor: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Learning rate at the end as a factor of the peak, for cosine, linear and poly; it stays there.",
    )
    power: float = Field(default=0.9, gt=0, description="Exponent of poly; unused otherwise. 1: linear.")
    step_size: Count = Field(default=1000, description="Optimizer steps between two drops of step; unused otherwise.")
    gamma: float = Field(default=0.1, gt=0, le=1, description="Factor of each drop of step; unused otherwise.")


class EvaluateConfig(Section):
    """When the validation set is run. Both may be set; both null: never."""

    every_epochs: Count | None = Field(default=1, description="Epochs between two evaluations. null: not by epochs.")
    every_steps: Count | None = Field(
        default=None, description="Optimizer steps between two evaluations. null: not by steps."
    )


class CheckpointConfig(Section):
    """When the state is saved and how many are kept. Both intervals null: only at the end."""

    every_epochs: Count | None = Field(default=1, description="Epochs between two checkpoints. null: not by epochs.")
    every_steps: Count | None = Field(
        default=None, description="Optimizer steps between two checkpoints. null: not by steps."
    )
    keep_last: Count = Field(default=2, description="Newest checkpoints that are kept; older ones are deleted.")
    keep_best: bool = Field(
        default=True, description="true: the best by `best.metric` is kept besides. Without a metric there is no best."
    )
    asynchronous: bool = Field(
        default=True,
        description="true: written in the background, a step waits only for the copy. false: a step waits.",
    )


class BestConfig(Section):
    """What makes one evaluation better than another."""

    metric: Text | None = Field(
        default=None,
        description="Name of the deciding metric as it is logged, such as `val/miou`. null: there is no best.",
    )
    mode: Literal["max", "min"] = Field(default="max", description="max: larger is better. min: smaller is better.")


class EmaConfig(Section):
    """A running average of the weights. Where it is on, evaluations and `best` are of the average, and a checkpoint
    keeps it as `ema.safetensors`, beside the weights that training goes on with.
    """

    decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Part of the average that stays at each optimizer step that changed the weights, such as 0.999. "
        "It begins smaller: min(decay, (1 + n) / (10 + n)) after n steps. null: no average.",
    )
    start_step: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Optimizer steps at the beginning that are left out of the average. 0: none."
    )


class StopConfig(Section):
    """When the run ends: at whichever comes first."""

    epochs: Count = Field(default=1, description="Epochs to train.")
    max_steps: Count | None = Field(
        default=None, description="Most optimizer steps. It does not shorten the schedule. null: no limit but `epochs`."
    )
    patience: Count | None = Field(
        default=None,
        description="Evaluations in a row without a better `best.metric` after which the run stops. null: never.",
    )
    nonfinite: Literal["skip", "stop"] = Field(
        default="skip",
        description="A loss or gradient that is infinite or not a number, on any rank. "
        "skip: all ranks leave the step out. stop: all ranks end the run.",
    )
    nonfinite_limit: Count = Field(
        default=10, description="Left out steps in a row after which the run fails all the same."
    )


class LogConfig(Section):
    """What is said and written."""

    every_steps: Count = Field(default=10, description="Optimizer steps between two lines of metrics.jsonl.")
    tensorboard: Switch = Field(default="auto", description="TensorBoard files. auto: where tensorboard is installed.")
    all_ranks: bool = Field(
        default=False, description="true: show the log of every rank with a prefix. false: of rank 0."
    )
    wandb: Annotated[Literal["off", "on", "offline"], BeforeValidator(yaml_switch)] = Field(
        default="off",
        description="Weights & Biases. on: as WANDB_MODE says, which is to the server where it says nothing. "
        "offline: a folder in that of the run, for `wandb sync`.",
    )
    mlflow: Annotated[Text, BeforeValidator(yaml_switch)] = Field(
        default="off",
        description="MLflow. off: none. on: as MLFLOW_TRACKING_URI says, else MLflow's default, `mlflow.db` in the "
        "current folder. Anything else: a tracking URI, or a folder, for `mlflow.db` in it.",
    )
    project: Text | None = Field(
        default=None,
        description="Project in W&B, experiment in MLflow. null: what their environment variables or defaults say.",
    )
    name: Text | None = Field(
        default=None, description="Name of the run in W&B and MLflow. null: the name of the run's folder."
    )
    progress: Switch = Field(default="auto", description="Progress bar. auto: where the output is a terminal.")
