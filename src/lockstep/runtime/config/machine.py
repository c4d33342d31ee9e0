"""The sections that say how a run computes: device, precision, ranks together, memory.

The descriptions are the docs: `describe.py` makes docs/config.md of them.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from lockstep.runtime.config.section import Count, Section, Switch, Text, off_word


class RunConfig(Section):
    """Where the run lives and on what it runs."""

    dir: Text | None = Field(
        default=None,
        description="Folder of the run: config, manifest, logs, checkpoints. null: `runs/<recipe>-<date>-<time>`.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: cuda where a GPU is visible, else cpu."
    )
    threads: Literal["auto"] | Count = Field(
        default="auto", description="CPU threads of each rank. auto: the node's cores divided by its ranks."
    )
    compile: Annotated[Literal["off", "static", "dynamic"], BeforeValidator(off_word)] = Field(
        default="off",
        description="torch.compile of the blocks (`parallel.blocks`), or of the whole model where there are none. "
        "static: kernels for each shape by itself, for few shapes. dynamic: the same kernels for all shapes.",
    )
    deterministic: bool = Field(
        default=False,
        description="true: only deterministic kernels, at some cost in speed. An operation without one is an error.",
    )


class PrecisionConfig(Section):
    """The number type of forward and backward; weights stay fp32 (fp64 with fp64). `precision: NAME` is short for
    `precision: {name: NAME}`, also as `precision=NAME`.
    """

    name: Literal["auto", "fp64", "fp32", "bf16", "fp16"] = Field(
        default="auto",
        description="auto: bf16 where the device has it in hardware, else fp16 with a loss scaler on CUDA, else fp32.",
    )
    fp32_modules: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        default=(),
        description="Patterns (`*`, `?`, `[a-c]`) of module names or class names, such as `[head, block.*.attn, "
        "LayerNorm]`. With bf16 and fp16, these modules and all inside them compute in fp32. []: none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class ParallelConfig(Section):
    """How the ranks work together. Nothing here says how many they are: `--nproc` or torchrun does."""

    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="ddp: every rank holds the whole model. fsdp: every rank holds its share of the parameters, "
        "gradients and optimizer state (FSDP2), for models that do not fit; a block is gathered while it is used.",
    )
    blocks: Literal["auto"] | list[Text] = Field(
        default="auto",
        description="Modules that are gathered (fsdp), recomputed (`memory.activation_checkpointing`) or compiled "
        "(`run.compile`) one by one: patterns of names or class names, such as `layers.*`. auto: the members of each "
        "`nn.ModuleList`. []: none.",
    )
    reshard_after_forward: bool = Field(
        default=True,
        description="fsdp only. true: a block is freed after its forward and gathered again for its backward. "
        "false: it stays until then; more memory, less communication.",
    )
    cpu_offload: bool = Field(
        default=False,
        description="fsdp only. true: shards, their gradients and the optimizer's state lie in host memory. "
        "Slower; without effect on a CPU.",
    )
    sync_batchnorm: bool = Field(
        default=False,
        description="true: BatchNorm takes its statistics over all ranks, on CPU too. false: each rank over its share.",
    )
    find_unused: Switch = Field(
        default="auto",
        description="Parameters without a gradient on some rank. auto: completed with zeros in the step where it "
        "happens, and named, without a search. on: torch's own search in every step (fsdp: as auto). "
        "off: one of them is an error.",
    )
    static_graph: bool = Field(
        default=False,
        description="ddp only. true: promise that every step uses the same parameters in the same way; it handles "
        "unused ones without a search.",
    )
    broadcast_buffers: Switch = Field(
        default="auto",
        description="Buffers. on: rank 0 sends them before each forward. off: each rank keeps its own in training. "
        "auto: on where there are others than running statistics; those are sent before evaluation and saving anyway.",
    )
    bucket_mb: float = Field(
        default=25.0,
        gt=0,
        description="ddp only. Gradients that are reduced together, in MiB. Smaller: starts earlier, more calls.",
    )
    check_every: Annotated[int, Field(ge=0)] = Field(
        default=100,
        description="Optimizer steps between two comparisons of the weights of all ranks, which are equal to the bit. "
        "0: never.",
    )
    timeout_s: float = Field(
        default=600.0, gt=0, description="Seconds that a collective may wait for the other ranks before the run fails."
    )


class MemoryConfig(Section):
    """How tensors lie in memory."""

    channels_last: bool = Field(
        default=True,
        description="true: image tensors with the channels innermost; the same numbers to rounding, faster.",
    )
    activation_checkpointing: bool = Field(
        default=False,
        description="true: the blocks (`parallel.blocks`) keep only their inputs and run their forward once more in "
        "backward: the same numbers, less memory, more time.",
    )
