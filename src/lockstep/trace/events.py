"""The events of a run, one class a kind. A line of a trace file is one of them as JSON; torch is not needed to read it.

Fields common to all: `at` is the user's line (`path:line`, "" where none is on the stack), `time` seconds of wall clock
since the epoch, `step` the number of `optimizer.step()` calls that this rank has completed, over all its optimizers.
A *digest* is a short hex text: equal bytes give equal digests. At default detail it covers a sample of a tensor's
elements, at full detail all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.trace.data_events import Batch, Loader, Pass, PassEnd, SetEpoch
from lockstep.trace.event import Event, plain

# ---- the process ----


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The first event. launch: `torchrun` (its variables were set), `single`, or `spawn` (by the script itself).

    rank, num_ranks, rank_of_node, ranks_per_node: of torchrun's variables (0, 1, 0, 1 without them). detail: `default`
    or `full`. versions: of python, torch. threads: of torch.
    """

    script: str
    argv: tuple[str, ...] = ()
    cwd: str = ""
    pid: int = 0
    launch: str = "single"
    rank: int = 0
    num_ranks: int = 1
    rank_of_node: int = 0
    ranks_per_node: int = 1
    detail: str = "default"
    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The last event, if the process came to tell. how: `returned`, `exited` (sys.exit), `raised`, `enough` (the asked
    number of steps). code: of sys.exit. error: `Type: message` of what was raised; `at` is then the user's frame."""

    how: str
    code: int = 0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Raised(Event):
    """An exception passed through a recorded call (`through`: forward, backward, step, collective, load, batch).

    If any later event of the script follows but `End`, the script has caught it.
    """

    through: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Trouble(Event):
    """Something here could not be told: the recorder's own error, which the script did not see."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Group(Event):
    """A process group begins or ends. what: `init`, `new`, `destroy`. group: 0 is the default one. ranks: members."""

    what: str
    group: int = 0
    backend: str = ""
    rank: int = 0
    ranks: tuple[int, ...] = ()


# ---- randomness ----


@dataclass(frozen=True, kw_only=True)
class Seed(Event):
    """A seed was set. lib: `torch`, `numpy`, `random`, `generator` (an explicit torch.Generator)."""

    lib: str
    value: int


@dataclass(frozen=True, kw_only=True)
class RandomState(Event):
    """Digests of the generators' states, "" where not looked at. when: `wrap`, `pass` (a pass over a loader begins),
    `fetch` (a batch is asked for), `batch` (it was handed out), `forward` (a training forward begins),
    `backward` (a backward pass begins)."""

    when: str
    torch: str = ""
    numpy: str = ""
    random: str = ""


# ---- models ----


@dataclass(frozen=True, kw_only=True)
class Model(Event):
    """A root module with parameters, told at its wrap or before its first step. model: number. kind: type name.

    names: parameters, clean (no `module.`, `_orig_mod.`). buffers: names. batch_norms, sync_batch_norms: names of such
    layers in it.
    """

    model: int
    kind: str
    names: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    batch_norms: tuple[str, ...] = ()
    sync_batch_norms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wrap(Event):
    """DistributedDataParallel (kind `ddp`) or FSDP (`fsdp`) was built around a model. group_size: ranks of its group.

    start: digests {parameter: digest} *before* the wrap on this rank (DDP then broadcasts rank 0's).
    """

    model: int
    kind: str
    group_size: int
    find_unused: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_view: bool = False
    start: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Forward(Event):
    """A root model was called. via: `wrapper` (through DDP), `inner` (a wrapped model, or one of its direct children,
    but not through its wrapper), `plain` (a model that nobody wrapped).

    sync: the wrapper will reduce gradients of this forward (not under no_sync). training, grad: modes. inputs: digest
    of the tensor arguments (full detail). autocast: its type where it is on (`bfloat16`), "".
    """

    model: int
    via: str
    training: bool = True
    grad: bool = True
    sync: bool = True
    inputs: str = ""
    autocast: str = ""


@dataclass(frozen=True, kw_only=True)
class Backward(Event):
    """`backward()` was called. loss: the value (None where it has several elements, or on a GPU at default
    detail). retain: the graph is kept. flags: {model: require_backward_grad_sync}."""

    loss: float | None = None
    retain: bool = False
    flags: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GradCall(Event):
    """`torch.autograd.grad` was called on parameters (names) of a wrapped model (these gradients are local)."""

    model: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoSync(Event):
    """`with model.no_sync()` begins or ends. what: `enter`, `exit`."""

    model: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Module(Event):
    """Full detail: a module (leaf or not) returned. name: clean path, "" for the root; call: which call of it in this
    step. digest: of its output. tensor: where the value lies (see `read_tensor`), -1 where it was not kept."""

    model: int
    name: str
    call: int
    digest: str
    tensor: int = -1


# ---- optimizers ----


@dataclass(frozen=True, kw_only=True)
class Optimizer(Event):
    """An optimizer, told before its first step. keys: one for each parameter, `group/index`; names: the parameter's
    name in a model (`model:name`, as `0:layers.1.weight`), "" if no module holds it. wrapped: number of the wrapped
    model that had the parameter when it was wrapped, -1 if none had. trainable: requires_grad now. frozen_at_wrap: it
    did not require a gradient at the wrap. dtype, dtype_at_wrap: names of types, "" where it was not wrapped. sharded:
    a DTensor, of which each rank holds a part. Told again when any of this has changed by a later step."""

    optimizer: int
    kind: str
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    numel: tuple[int, ...] = ()
    wrapped: tuple[int, ...] = ()
    trainable: tuple[bool, ...] = ()
    frozen_at_wrap: tuple[bool, ...] = ()
    dtype_at_wrap: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    sharded: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """`optimizer.step()` returned. number: of this optimizer's steps, from 0. lr: of each group, as used.

    before, after: {key: digest} of the parameters around the step. grads: {key: digest} of the gradients as used
    (unscaled). missing: keys without a gradient. norm: of the whole gradient (over those that there are).
    start_tensors, grad_tensors, param_tensors: {key: place} of the parameters before the first step, of the gradients,
    and of the parameters after (full detail, see `read_tensor`).
    """

    optimizer: int
    number: int
    lr: tuple[float, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    grads: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    norm: float | None = None
    start_tensors: Mapping[str, int] = field(default_factory=dict)
    grad_tensors: Mapping[str, int] = field(default_factory=dict)
    param_tensors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scaler(Event):
    """`GradScaler.update()` returned. scale: the new one. skipped: the step before was skipped (non-finite)."""

    scale: float
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class Schedule(Event):
    """A scheduler stepped. schedule: number; kind: type. lr: after. metric: what a plateau scheduler was given.

    total: its declared length in steps where it has one (T_max, total_steps, ...), None. count: its steps so far.
    per: optimizer steps since its last step.
    """

    schedule: int
    kind: str
    lr: tuple[float, ...] = ()
    metric: float | None = None
    total: int | None = None
    count: int = 0
    per: int = 0


@dataclass(frozen=True, kw_only=True)
class Buffers(Event):
    """State of a model's buffers. when: `eval` (the first evaluation forward after training), `save`, `end`."""

    model: int
    when: str
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Loaded(Event):
    """`load_state_dict` of a module. matched: entries that were used; given: entries in the dict; wanted: entries that
    the module has."""

    what: str
    model: int = -1
    matched: int = 0
    given: int = 0
    wanted: int = 0
    strict: bool = True


# ---- communication ----


@dataclass(frozen=True, kw_only=True)
class Collective(Event):
    """A collective that the script called itself (those inside DDP are not events). number: of this rank's, from 0.

    op: `all_reduce`, `broadcast`, `barrier`, `all_gather`, `all_gather_object`, `monitored_barrier`, `send`, ...
    group: 0 is the default one; ranks: its members. shape, dtype: of the input. reduce: `sum`, `avg`, `max`... src:
    source or destination rank, None. grad: the input requires a gradient. given, got: values before and after where
    there are at most 16 elements on a CPU, else (). tensor: identity of the memory that was reduced. done: the call
    returned (False: it never did, as far as is known). end: the time when it returned.
    """

    number: int
    op: str
    group: int = 0
    ranks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    reduce: str = ""
    src: int | None = None
    grad: bool = False
    given: tuple[float, ...] = ()
    got: tuple[float, ...] = ()
    tensor: int = 0
    done: bool = True
    end: float = 0.0


# ---- files and words ----


@dataclass(frozen=True, kw_only=True)
class File(Event):
    """A file was touched by the script. op: `save` (torch.save), `load` (torch.load), `write` (opened for writing),
    `read` (opened for reading, only below the working directory or a folder that the script wrote to), `mkdir`,
    `rename`, `remove`. path: absolute. target: of a rename. end: time when a save or load returned, 0 if it raised.
    exists: it was there before. append: opened to add to its end."""

    op: str
    path: str
    target: str = ""
    end: float = 0.0
    exists: bool = False
    append: bool = False
    map_location: str = ""


@dataclass(frozen=True, kw_only=True)
class Output(Event):
    """Words for a person or a tracker. what: `print`, `tqdm`, `tensorboard`, `wandb`, `mlflow`. text: first 200
    characters. count: how often this place has spoken so far (1, 2, 4, 8 ... are told; the rest is not)."""

    what: str
    text: str = ""
    count: int = 1


KINDS: Mapping[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Start, End, Raised, Trouble, Group, Seed, RandomState, Loader, Pass, Batch, PassEnd, SetEpoch, Model, Wrap,
        Forward, Backward, GradCall, NoSync, Module, Optimizer, Step, Scaler, Schedule, Buffers, Loaded, Collective,
        File, Output,
    )
}  # fmt: skip
"""By name, for reading."""

__all__ = [
    "KINDS",
    "Backward",
    "Batch",
    "Buffers",
    "Collective",
    "End",
    "Event",
    "File",
    "Forward",
    "GradCall",
    "Group",
    "Loaded",
    "Loader",
    "Model",
    "Module",
    "NoSync",
    "Optimizer",
    "Output",
    "Pass",
    "PassEnd",
    "Raised",
    "RandomState",
    "Scaler",
    "Schedule",
    "Seed",
    "SetEpoch",
    "Start",
    "Step",
    "Trouble",
    "Wrap",
    "plain",
]
