"""Everything one rank trains with, built from the config in the one order that works."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lockstep.core.errors import UserError, explain
from lockstep.runtime.batch import BatchPlan
from lockstep.runtime.config import Config
from lockstep.runtime.data.alike import check_alike
from lockstep.runtime.data.broken import Broken, sound
from lockstep.runtime.data.check import check_lengths, check_shares
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.loader import Reading, TrainLoader, eval_loader
from lockstep.runtime.data.packing import PackedPlan
from lockstep.runtime.data.sampler import EvalSampler, Key, TrainSampler
from lockstep.runtime.data.samples import Collate, KeyedDataset
from lockstep.runtime.data.sizing import Sizing
from lockstep.runtime.data.transfer import to_device
from lockstep.runtime.ema import Ema
from lockstep.runtime.fp32_modules import compute_in_fp32
from lockstep.runtime.optim import build_optimizer, build_schedule
from lockstep.runtime.parallel.batch_norm import synchronise
from lockstep.runtime.parallel.wrap import wrap
from lockstep.runtime.parallel.wrapped import Wrapped
from lockstep.runtime.precision import Precision
from lockstep.runtime.recipe import Recipe
from lockstep.runtime.rehearsal import Rehearsal, rehearse
from lockstep.runtime.state.fellows import Fellows
from lockstep.runtime.state.position import Position
from lockstep.runtime.state.saver import State, find_checkpoint
from lockstep.runtime.state.weights import load_weights, read_weights
from lockstep.runtime.step import TrainStep
from lockstep.runtime.streams import shared_stream
from lockstep.runtime.world import World

log = logging.getLogger("lockstep")


@dataclass
class Session:
    """One rank's parts of a run.

    Attributes:
        position: where the run stands.
        unused: parameters that had no gradient on some rank so far; each is named once.
        val: the evaluation sampler and loader, None without a validation set.
        max_steps: optimizer steps to stop at, None for no limit but the epochs.
    """

    config: Config
    world: World
    recipe: Recipe
    plan: BatchPlan
    precision: Precision
    model: nn.Module
    replica: Wrapped
    train: TrainLoader
    train_data: Dataset[Any]
    val: tuple[EvalSampler, DataLoader[Any]] | None
    step: TrainStep
    state: State
    position: Position
    unused: set[str]
    max_steps: int | None

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of the first epoch; None for a stream."""
        source = self.train.source
        return source.num_steps(1) if isinstance(source, TrainSampler) else None

    @property
    def contract(self) -> str:
        """What a step is made of, in one line."""
        source = self.train.source
        plan = source.plan if isinstance(source, TrainSampler) else None
        return self.plan.line(self.steps_per_epoch, plan.most_micro if isinstance(plan, PackedPlan) else 1)

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of the whole run, None where a stream does not tell."""
        limit, source = self.max_steps, self.train.source
        if not isinstance(source, TrainSampler):
            return limit
        whole = source.num_steps(self.config.stop.epochs)
        return whole if limit is None else min(limit, whole)

    def read(self, keys: list[Key]) -> Any:
        """A device batch of the given training samples, or the error that reading them gave."""
        stream = KeyedDataset(self.train_data, self.config.seed, "train")
        return self.on_device(Collate(self.recipe, "train")(stream.__getitems__(keys)))

    def on_device(self, host: Any) -> Any:
        """A host batch as the model takes it."""
        return to_device(host, self.world.device, self.precision.dtype, self.config.memory.channels_last)


def build_session(
    recipe: Recipe,
    config: Config,
    world: World,
    checkpoints: Path | None,
    max_steps: int | None = None,
    stop_asked: Callable[[], bool] | None = None,
) -> Session:
    """Build every part, restore the newest checkpoint where one is asked for, and rehearse.

    Args:
        recipe, config, world: the user's task, the resolved config, the ranks.
        checkpoints: the folder to resume from, None for a new run.
        max_steps: a further limit of optimizer steps.
        stop_asked: whether this rank was asked to stop.
    """
    plan = BatchPlan.of(config.batch, config.optim, world.num_ranks)
    precision = _precision(config, world)
    train_data, val_data = recipe.train_data(), recipe.val_data()
    reading = Reading(config.data.workers, config.data.prefetch, config.seed)
    sizing = Sizing.of(recipe, train_data, config.batch, config.data)
    deal = plan.global_batch, plan.accumulation, config.data.shuffle, sizing
    train = TrainLoader(train_data, recipe, reading, world, *deal)
    model = _model(recipe, config, world, precision, resumed=checkpoints is not None)
    replica = wrap(model, recipe, world, config)
    optimizer = build_optimizer(model, config.optim, plan.lr)
    schedule = build_schedule(optimizer, config.schedule, _schedule_steps(config, train), plan.lr_factor)
    fellows = Fellows(world) if replica.paired else None
    state = State(model, optimizer, schedule, precision.scaler, fellows, Ema.of(model, config.ema))
    position = Position() if checkpoints is None else state.restore(find_checkpoint(checkpoints, world))
    check_lengths(val_data, world)
    _take_up(train, state, position)
    _announce_shares(train, world, position)
    check_alike({"train": train_data, "val": val_data}, config.seed, world)
    rehearsed = _rehearse(replica, recipe, config, precision, train_data, train, world, plan)
    clip = config.optim.clip_norm
    step = TrainStep(world, recipe, replica, optimizer, schedule, precision, clip, rehearsed.counting, stop_asked)
    return Session(
        config=config,
        world=world,
        recipe=recipe,
        plan=plan,
        precision=precision,
        model=model,
        replica=replica,
        train=train,
        train_data=train_data,
        val=None if val_data is None else eval_loader(val_data, recipe, reading, world, config.batch.eval),
        step=step,
        state=state,
        position=position,
        unused=set(rehearsed.unused),
        max_steps=min((n for n in (max_steps, config.stop.max_steps) if n is not None), default=None),
    )


def _precision(config: Config, world: World) -> Precision:
    precision = Precision.of(config.precision.name, world.device)
    offloads = config.parallel.strategy == "fsdp" and config.parallel.cpu_offload and world.device.type != "cpu"
    if offloads and precision.scaler.is_enabled():
        # The scaler sends its factor to the host without waiting for it to arrive.
        seen = "precision fp16 with parallel.cpu_offload=true"
        must = "fp16 has a loss scale, which torch does not take off gradients in host memory in time"
        raise UserError(explain(seen, must, next_step="precision=bf16 or fp32, or parallel.cpu_offload=false"))
    return precision


def _schedule_steps(config: Config, train: TrainLoader) -> int:
    """Optimizer steps of the schedule, the same at every N: a tail that N ranks would drop is counted."""
    if config.schedule.total_steps is not None:
        return config.schedule.total_steps
    if isinstance(train.source, TrainSampler):
        return train.source.num_steps(config.stop.epochs, num_ranks=1)
    if config.stop.max_steps is None and config.schedule.name not in ("constant", "step"):
        seen = f"schedule.name={config.schedule.name} for a stream, which does not tell its length"
        must = "the number of steps until the schedule ends"
        raise UserError(explain(seen, must, next_step="set schedule.total_steps, or schedule.name=constant"))
    return config.stop.max_steps or 1


def _take_up(train: TrainLoader, state: State, position: Position) -> None:
    """Go on with what was saved of the data: a stream's own state, or the order of an epoch that was begun.

    Raises:
        UserError: where the rest of the epoch would come in another order: samples would be lost, others read twice.
    """
    saved, source = state.notes.pop("order", None), train.source
    if isinstance(source, SplitStream):
        source.resume_from = state.stream
    elif position.consumed and saved not in (None, source.signature):
        seen = f"epoch {position.epoch} was begun with {saved}, and would go on with {source.signature}"
        must = "the order stays as it is until the epoch ends, so that each sample is read once"
        raise UserError(explain(seen, must, next_step="resume with the values of the save, and change them later"))


def _announce_shares(train: TrainLoader, world: World, position: Position) -> None:
    if isinstance(train.source, SplitStream):
        return
    train.source.epoch, train.source.start = position.epoch, position.consumed
    line = check_shares(train.source, world)
    if world.is_main:
        log.info(line)


def _model(recipe: Recipe, config: Config, world: World, precision: Precision, resumed: bool) -> nn.Module:
    """The model as it starts, before it is wrapped."""
    with shared_stream(config.seed, "model"):
        model = recipe.model()
    if config.parallel.sync_batchnorm:
        model = synchronise(model, world.device)
    compute_in_fp32(model, config.precision.fp32_modules, precision)
    shards = config.parallel.strategy == "fsdp"
    # A model that does not fit is moved shard by shard; a shard has no channels to be laid out.
    model = _typed(model, precision.dtype).to("cpu" if shards else world.device)
    if config.memory.channels_last and not shards:
        _to_channels_last(model)
    if config.init_from is not None and not resumed:
        load_weights(model, read_weights(Path(config.init_from)), config.init_from)
    return model.train()


def _typed(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Parameters and buffers of real numbers in a type.

    Raises:
        UserError: where there are complex ones: their twin of double precision cannot be saved.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()) if dtype is not None else ():
        if tensor.is_complex():
            must = "precision=fp64 is for real numbers: safetensors keeps no complex ones of double precision"
            raise UserError(explain(f"{name} holds complex numbers", must, "recipe.model()", "precision=fp32"))
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    return model


@torch.no_grad()
def _to_channels_last(model: nn.Module) -> None:
    """Lay out convolution weights with channels innermost.

    A 1 x 1 kernel is the same in both layouts, and torch leaves its strides alone; its gradient comes with the other
    strides and would be copied one by one into its bucket.
    """
    for param in model.parameters():
        if param.dim() == 4:
            param.data = torch.empty_like(param, memory_format=torch.channels_last).copy_(param)


def _rehearsal_keys(source: TrainSampler, plan: BatchPlan, world: World) -> list[Key]:
    """The samples of this rank's rehearsal, the same in every start: of the first micro-step where targets count."""
    if plan.targets:
        source.epoch = source.start = 0
        return source.keys(0, 0)
    size = min(source.length, plan.global_batch // (world.num_ranks * plan.accumulation))
    return [(0, (world.rank + i) % source.length) for i in range(size)]


def _rehearse(
    replica: Wrapped,
    recipe: Recipe,
    config: Config,
    precision: Precision,
    data: Dataset[Any],
    train: TrainLoader,
    world: World,
    plan: BatchPlan,
) -> Rehearsal:
    source, collate = train.source, Collate(recipe, "train")
    if isinstance(source, SplitStream):
        source.epoch, source.start = 0, 0
        first = next(iter(source), None)
        if first is None:
            seen = f"train_data() gave a stream that is too short for {world.num_ranks} ranks, or empty"
            raise UserError(explain(seen, "at least one sample for each rank", "recipe", "check its source"))
        # Its state, where it comes with one, is of no step.
        host = collate(first if isinstance(first, Broken) else replace(first, after=None))
    else:
        keys = _rehearsal_keys(source, plan, world)
        host = collate(KeyedDataset(data, config.seed, "train").__getitems__(keys))
    sound(host, world.rank)
    batch = to_device(host, world.device, precision.dtype, config.memory.channels_last)
    found = rehearse(replica, recipe, precision, host, batch, plan.accumulation, world)
    if found.unused and world.is_main:
        log.info(
            "parameters without a gradient on some rank, completed with zeros: %s", ", ".join(sorted(found.unused))
        )
    return found
