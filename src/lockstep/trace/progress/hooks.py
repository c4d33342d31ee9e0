"""Marks made from torch's own calls: steps, batches, backward passes, collectives, saves. The script is unchanged.

Only the main thread of the rank's own process marks: a DataLoader worker, a thread that saves and a child do not.
"""

import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from lockstep.trace.hooks.collectives import NAMES, tensor_of
from lockstep.trace.place import users_line
from lockstep.trace.progress.board import Marks, Phase
from lockstep.trace.progress.reductions import Reductions
from lockstep.trace.progress.same import Sameness
from lockstep.trace.teardown import keep_group

_BETWEEN_TWO = frozenset(
    ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
)
# What travels has the same type and size on every rank. In all others ranks may differ in it, and be right.
_EQUAL = frozenset(("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor"))


def install(marks: Marks) -> None:
    """Hook torch in this process, for as long as it lives."""
    watch = _Hooks(marks)
    os.register_at_fork(after_in_child=watch.silence)
    for name in NAMES:
        if hasattr(c10d, name):
            _patch(c10d, name, partial(watch.collective, name))
            setattr(dist, name, getattr(c10d, name))
    for name in ("init_process_group", "new_group"):
        _patch(c10d, name, watch.joining)
        setattr(dist, name, getattr(c10d, name))
    _patch(c10d, "destroy_process_group", watch.destroy)
    dist.destroy_process_group = c10d.destroy_process_group
    _patch(dist.Work, "wait", watch.wait)
    _patch(torch, "save", partial(watch.phase, Phase.SAVE))
    _patch(torch, "load", partial(watch.phase, Phase.LOAD))
    _patch(safetensors.torch, "save_file", partial(watch.phase, Phase.SAVE))
    _patch(safetensors.torch, "load_file", partial(watch.phase, Phase.LOAD))
    _patch(DataLoader, "__iter__", partial(watch.phase, Phase.LOAD))
    _patch(torch, "compile", watch.compile)
    _patch(torch.autograd, "backward", watch.backward)
    _patch(DistributedDataParallel, "forward", watch.forward)
    _patch(DistributedDataParallel, "_sync_buffers", watch.buffers)
    _patch(DistributedDataParallel, "join", watch.join)
    _patch(nn.Module, "train", watch.train)
    _patch(_BaseDataLoaderIter, "__next__", watch.next)
    register_optimizer_step_pre_hook(watch.before_step)
    register_optimizer_step_post_hook(watch.after_step)


def _patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


class _Hooks:
    """What the hooks share."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self._thread = threading.main_thread().ident
        self._depth = 0
        self._turns = Turns()
        self._before_step = Phase.SCRIPT
        self._reductions = Reductions(marks)
        self._compiles = False
        self._same = Sameness()

    def silence(self) -> None:
        """A forked child does not mark."""
        self._thread = None

    @property
    def _ours(self) -> bool:
        return threading.get_ident() == self._thread and not torch.compiler.is_compiling()

    def phase(self, phase: Phase, original: Callable[..., Any]) -> Callable[..., Any]:
        """A call that is one phase."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._ours or self._depth:
                return original(*args, **kwargs)
            with self.marks.within(phase):
                return original(*args, **kwargs)

        return call

    def wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Waiting for a collective that was started before."""

        def wait(*args: Any, **kwargs: Any) -> Any:
            if not self._ours or self._depth:
                return original(*args, **kwargs)
            with self.marks.again(Phase.COLLECTIVE):
                return original(*args, **kwargs)

        return wait

    def joining(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Making a group: the others have to come."""

        def join(*args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                return original(*args, **kwargs)
            if self.marks.phase == Phase.END:  # a script that makes a second default group goes on
                self.marks.enter(Phase.SCRIPT)
            with self.marks.within(Phase.JOIN):
                made = original(*args, **kwargs)
            if dist.is_initialized() and "nccl" in str(dist.get_backend()):
                self.marks.queues()
            return made

        return join

    def destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """From its call on, this rank joins no collective any more."""

        def destroy(group: Any = None) -> Any:
            if self._ours and group in (None, dist.group.WORLD):
                self.marks.evaluating = False
                self.marks.enter(Phase.END)
            keep_group(group)
            return original(group)

        return destroy

    def collective(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A collective that the script calls; what torch calls inside it is torch's own business."""

        def call(*args: Any, **kwargs: Any) -> Any:
            outside = any(one is dist.GroupMember.NON_GROUP_MEMBER for one in (*args, *kwargs.values()))
            if not self._ours or self._depth or outside or not dist.is_initialized():
                return original(*args, **kwargs)
            self._depth += 1
            try:
                with self._collective(name, args, kwargs):
                    return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return call

    def _collective(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        group = kwargs.get("group", next((one for one in args if isinstance(one, dist.ProcessGroup)), None))
        if name in _BETWEEN_TWO or (group is not None and group is not dist.group.WORLD):
            return self.marks.elsewhere(name, users_line(3))
        tensor = tensor_of(args, kwargs) if name in _EQUAL else None
        about = "" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}[{tensor.numel()}]"
        return self.marks.collective(name, about, users_line(3))

    def forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The wrapper's forward, and the word that a backward with reductions will follow."""

        def forward(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                return original(ddp, *args, **kwargs)
            with self.marks.within(Phase.FORWARD):
                result = original(ddp, *args, **kwargs)
            whole = _is_world(ddp)
            if whole and torch.is_grad_enabled() and ddp.require_backward_grad_sync:
                self._reductions.expect(result)
                self._same.follow(ddp)
            return result

        return forward

    def buffers(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The broadcast of the buffers, before a forward."""

        def buffers(ddp: DistributedDataParallel) -> Any:
            if not self._ours or not _is_world(ddp):
                return original(ddp)
            with self.marks.collective("buffers", "", users_line(2)):
                return original(ddp)

        return buffers

    def backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A backward pass: with a reduction inside where a wrapper's forward came before it."""

        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                return original(*args, **kwargs)
            if self._reductions.inside:  # one that runs a part of the forward again
                return original(*args, **kwargs)
            if not self._reductions.expected:
                # A backward from a parameter itself completes the reduction of the one before it.
                last = args[0][-1] if args and isinstance(args[0], list) and args[0] else None
                completes = isinstance(last, torch.Tensor) and last.is_leaf
                with self.marks.again() if completes else self.marks.within(Phase.BACKWARD):
                    return original(*args, **kwargs)
            with self.marks.within(Phase.BACKWARD), self._reductions.backward(users_line(2)):
                return original(*args, **kwargs)

        return backward

    def join(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Ranks with fewer inputs shadow what the others call: there is nothing left to compare."""

        def join(*args: Any, **kwargs: Any) -> Any:
            self.marks.incomparable()
            return original(*args, **kwargs)

        return join

    def train(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Evaluation takes its time, and makes no steps."""

        def train(module: nn.Module, mode: bool = True) -> Any:
            if self._ours:
                self.marks.evaluating = not mode
                self.marks.enter(self.marks.phase)
            return original(module, mode)

        return train

    def next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Waiting for the next batch."""

        def following(iterator: Any) -> Any:
            if not self._ours:
                return original(iterator)
            began = time.monotonic_ns()
            first = not iterator._num_yielded  # workers start, files are opened
            with self.marks.within(Phase.LOAD if first else Phase.DATA):
                batch = original(iterator)
                self.marks.took_batch(0 if first else time.monotonic_ns() - began)
            return batch

        return following

    def compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """From the first use of it on, compilations are a phase."""

        def compile(*args: Any, **kwargs: Any) -> Any:
            if self._ours and not self._compiles:
                self._compiles = True
                self._follow_compilations()
            return original(*args, **kwargs)

        return compile

    def _follow_compilations(self) -> None:
        from torch._dynamo.callback import callback_handler

        before: list[Phase] = []

        def start(*_: Any) -> None:
            if threading.get_ident() == self._thread:
                before.append(self.marks.enter(Phase.COMPILE))

        def end(*_: Any) -> None:
            if threading.get_ident() == self._thread and before:
                self.marks.enter(before.pop())

        callback_handler.register_start_callback(start)
        callback_handler.register_end_callback(end)

    def before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """An optimizer step begins."""
        if self._ours:
            self._before_step = self.marks.enter(Phase.STEP)

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """It is done."""
        if not self._ours:
            return
        self.marks.enter(self._before_step)
        if self._turns.counts(optimizer):
            self.marks.stepped()
            if self._same.due(self.marks.step):
                self.marks.digest(self.marks.step, self._same.digest(self.marks.step))
            self._same.stepped()


class Turns:
    """Which optimizer steps are the steps of the training, where there are several optimizers.

    Those of the first one. Another one takes its place when it steps twice without a step of the first between: the
    script has made a new one. What Python has freed by then plays no role: it differs between ranks.
    """

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._next = itertools.count()
        self._counted = 0
        self._since: set[int] = set()

    def counts(self, optimizer: Optimizer) -> bool:
        """Whether this step of an optimizer is counted."""
        number = self._numbers.get(optimizer)
        if number is None:
            number = self._numbers[optimizer] = next(self._next)
        if number != self._counted and number not in self._since:
            self._since.add(number)
            return False
        self._counted = number
        self._since.clear()
        return True


def _is_world(ddp: DistributedDataParallel) -> bool:
    group = ddp.process_group
    return bool(group is not None and group.size() == dist.get_world_size() and not ddp._join_config.enable)
