"""What is measured: the jobs, the contenders, and the budgets they are held to. Data only."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Contender:
    """One script of `peers/` with its settings.

    Attributes:
        script: file name in `peers/`, without the suffix.
        env: settings of this variant.
        limit: the contender that does the same step without communication; "" where none is measured.
    """

    script: str
    env: dict[str, str] = field(default_factory=dict)
    limit: str = "no-comm"


@dataclass(frozen=True)
class Budget:
    """A ratio of two contenders' step times, and the most it may be."""

    what: str
    over: str
    under: str
    most: float


@dataclass(frozen=True)
class Job:
    """One table."""

    title: str
    env: dict[str, str]
    contenders: tuple[str, ...]
    budgets: tuple[Budget, ...] = ()


BASE = "raw-ddp"
CONTENDERS = {
    BASE: Contender("raw_ddp"),
    "no-comm": Contender("raw_ddp", {"BENCH_RAW": "no-comm"}),
    "lockstep": Contender("with_lockstep", limit="lockstep-no-comm"),
    "lockstep-no-comm": Contender("with_lockstep", {"BENCH_LOCKSTEP": "no-comm"}, "lockstep-no-comm"),
    "lockstep-plain": Contender("with_lockstep", {"BENCH_LOCKSTEP": "plain"}),
    "lockstep-bf16": Contender("with_lockstep", {"BENCH_PRECISION": "bf16"}, ""),
    "accelerate": Contender("with_accelerate"),
    "fabric": Contender("with_fabric"),
    "lightning": Contender("with_lightning"),
    "ignite": Contender("with_ignite"),
}
PEERS = ("accelerate", "fabric", "lightning", "ignite")
OURS = ("lockstep", "lockstep-no-comm")

UNET = Job(
    "U-Net, fp32",
    {"BENCH_PRECISION": "fp32"},
    (BASE, "no-comm", *OURS, "lockstep-plain", "lockstep-bf16", *PEERS),
    (
        Budget("same step, plain settings: not slower than hand-written DDP", "lockstep-plain", BASE, 1.0),
        Budget("defaults that keep the numbers: 1.15 times faster", "lockstep", BASE, 1 / 1.15),
        Budget("with bf16: 1.5 times faster", "lockstep-bf16", BASE, 1 / 1.5),
        Budget("over the step without communication", "lockstep", "lockstep-no-comm", 1.05),
    ),
)
UNET_BF16 = Job(
    "U-Net, bf16",
    {"BENCH_PRECISION": "bf16"},
    (BASE, "no-comm", *OURS, *PEERS),
    (Budget("same precision: not slower than hand-written DDP", "lockstep", BASE, 1.0),),
)
TINY = Job(
    "tiny step, fp32",
    {"BENCH_PRECISION": "fp32", "BENCH_STEPS": "300", "BENCH_SIZE": "16", "BENCH_WIDTH": "4"},
    (BASE, "no-comm", *OURS, "lockstep-plain", *PEERS),
    (
        Budget("same step, plain settings: not slower than hand-written DDP", "lockstep-plain", BASE, 1.0),
        Budget("over the step without communication", "lockstep", "lockstep-no-comm", 1.3),
    ),
)
JOBS = {"unet": UNET, "unet-bf16": UNET_BF16, "tiny": TINY}


def has_bf16() -> bool:
    """Whether this CPU computes bf16 in hardware."""
    flags = Path("/proc/cpuinfo")
    words = set(flags.read_text().split()) if flags.exists() else set()
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
