"""Collectives that the script calls itself: which, with what, where. Those inside DDP are C++ and not seen here."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from lockstep.trace.events import Collective, Group
from lockstep.trace.recorder import Recorder
from lockstep.trace.teardown import keep_group

NAMES = [
    "all_reduce",
    "broadcast",
    "barrier",
    "monitored_barrier",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send",
    "recv",
    "isend",
    "irecv",
    "all_gather_coalesced",
    "all_reduce_coalesced",
    "batch_isend_irecv",
    "send_object_list",
    "recv_object_list",
    "all_gather_single",
    "reduce_scatter_single",
]
_OLD_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
"""What torch has renamed is told under one name."""
_SMALL = 16
_SOURCES = ("src", "dst", "group_src", "group_dst")
_inside = threading.local()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What is called in here is torch's own business, or ours."""
    _inside.depth = getattr(_inside, "depth", 0) + 1
    try:
        yield
    finally:
        _inside.depth -= 1


def install(recorder: Recorder) -> None:
    """Hook torch.distributed."""
    groups = _Groups()
    counter = iter(range(1 << 62))
    for name in NAMES:
        if hasattr(c10d, name):
            _patch(recorder, name, partial(_collective, _OLD_NAMES.get(name, name), recorder, groups, counter))
    _patch(recorder, "init_process_group", lambda original: _init(original, recorder))
    _patch(recorder, "new_group", lambda original: _new(original, recorder, groups))
    _patch(recorder, "destroy_process_group", lambda original: _destroy(original, recorder))


def _patch(recorder: Recorder, name: str, make: Callable[[Any], Any]) -> None:
    recorder.patch(c10d, name, make)
    setattr(dist, name, getattr(c10d, name))


class _Groups:
    """Numbers for process groups, in order of their making."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._made = 0

    def add(self, group: Any) -> int:
        """Who is no member counts it too, so that numbers agree."""
        self._made += 1
        self._numbers[id(group)] = self._made
        return self._made

    def of(self, group: Any) -> tuple[int, tuple[int, ...]]:
        """Number and ranks of a group; None and the default one are 0."""
        if group is None or group is dist.group.WORLD:
            return 0, tuple(range(dist.get_world_size())) if dist.is_initialized() else ()
        if not isinstance(group, dist.ProcessGroup):
            return 0, ()
        number = self._numbers.get(id(group)) or self.add(group)  # one that was split off, or a mesh's
        return number, tuple(dist.get_process_group_ranks(group))


def _collective(
    name: str, recorder: Recorder, groups: _Groups, counter: Iterator[int], original: Callable[..., Any]
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        # Who is no member of the group does nothing: torch returns at once.
        outside = any(one is dist.GroupMember.NON_GROUP_MEMBER for one in (*args, *kwargs.values()))
        if getattr(_inside, "depth", 0) or outside or not recorder.alive:
            return original(*args, **kwargs)
        event = Collective(number=next(counter), op=name, done=False)
        with recorder.ours:
            event = _event(event, args, kwargs, groups)
        recorder.emit(event)
        recorder.flush()
        with unseen():
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                recorder.raised("collective", error)
                raise
        # The call has been told before it was made, in case it never returns; this is its end.
        with recorder.ours:
            tensor = tensor_of(args, kwargs) if result is None and event.given else None
            recorder.emit(replace(event, done=True, got=_values(tensor) if tensor is not None else ()))
        return result

    return call


def _event(call: Collective, args: tuple[Any, ...], kwargs: dict[str, Any], groups: _Groups) -> Collective:
    name = call.op
    tensor = tensor_of(args, kwargs)
    group, ranks = groups.of(
        kwargs.get("group", next((one for one in args if isinstance(one, dist.ProcessGroup)), None))
    )
    source = next((kwargs[key] for key in _SOURCES if isinstance(kwargs.get(key), int)), None)
    if source is None and name in ("broadcast", "reduce", "send", "recv", "broadcast_object_list", "isend", "irecv"):
        source = next(
            (one for one in args[1:2] if isinstance(one, int)), 0 if name == "broadcast_object_list" else None
        )
    reduce = kwargs.get(
        "op", next((one for one in args if isinstance(one, dist.ReduceOp | dist.ReduceOp.RedOpType)), None)
    )
    return replace(
        call,
        group=group,
        ranks=ranks,
        shape=tuple(tensor.shape) if tensor is not None else (),
        dtype=str(tensor.dtype).removeprefix("torch.") if tensor is not None else "",
        reduce=_reduction(name, reduce),
        src=source,
        grad=tensor is not None and tensor.requires_grad and torch.is_grad_enabled(),
        given=_values(tensor) if tensor is not None else (),
        tensor=tensor.data_ptr() if tensor is not None and tensor.layout is torch.strided else 0,
    )


def _reduction(name: str, reduce: Any) -> str:
    if "reduce" not in name:
        return ""
    return "sum" if reduce is None else str(reduce).rpartition(".")[2].lower()


def tensor_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor of this rank that goes in: for all_gather and the like the second one."""
    found = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
    return found[-1] if found else None


def _values(tensor: Tensor) -> tuple[float, ...]:
    if tensor.numel() > _SMALL or tensor.device.type != "cpu" or tensor.is_complex():
        return ()
    if tensor.layout is not torch.strided:
        return ()
    return tuple(float(value) for value in tensor.detach().reshape(-1).tolist())


def _init(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def init(*args: Any, **kwargs: Any) -> Any:
        recorder.flush()
        with unseen():
            result = original(*args, **kwargs)
        ranks = tuple(range(dist.get_world_size()))
        recorder.emit(Group(what="init", backend=str(dist.get_backend()), rank=dist.get_rank(), ranks=ranks))
        return result

    return init


def _new(original: Callable[..., Any], recorder: Recorder, groups: _Groups) -> Callable[..., Any]:
    def new(*args: Any, **kwargs: Any) -> Any:
        recorder.flush()
        with unseen():
            group = original(*args, **kwargs)
        number = groups.add(group)
        if isinstance(group, dist.ProcessGroup):
            members = tuple(dist.get_process_group_ranks(group))
            recorder.emit(Group(what="new", group=number, rank=dist.get_rank(), ranks=members))
        return group

    return new


def _destroy(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def destroy(group: Any = None) -> Any:
        recorder.emit(Group(what="destroy"))
        recorder.flush()
        keep_group(group)
        with unseen():
            return original(group)

    return destroy
