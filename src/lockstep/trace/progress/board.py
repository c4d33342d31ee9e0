"""A board in shared memory: each rank writes its own lines of it, the launcher reads all.

One writer a slot, no lock: a rank that is stopped, killed or stuck in C code leaves what it wrote last. Times are
nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import mmap
import os
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_FILE = "board"
_HEADER = 64
_RING = 32
_TEXT = 232
_NUMBERS = struct.Struct("=qqqqqqqqqqqqqq")
_HEAD = 128
_ENTRY = struct.Struct(f"=qqqq{_TEXT}s")
_STEP = struct.Struct("=qqq")
_SAME = struct.Struct("=qQ")
_ENTRIES_AT = _HEAD
_NOW_AT = _ENTRIES_AT + _RING * _ENTRY.size
_STEPS_AT = _NOW_AT + 256
_SAMES_AT = _STEPS_AT + _RING * _STEP.size
_SLOT = -(-(_SAMES_AT + _RING * _SAME.size) // 4096) * 4096


class Phase(IntEnum):
    """What a rank is in, as far as torch's own calls show it."""

    START = 0
    JOIN = 1
    DATA = 2
    FORWARD = 3
    BACKWARD = 4
    STEP = 5
    COLLECTIVE = 6
    SAVE = 7
    LOAD = 8
    COMPILE = 9
    SCRIPT = 10
    END = 11


WAITING = (Phase.COLLECTIVE, Phase.BACKWARD)
"""The phases in which a rank may wait inside a collective."""


@dataclass(frozen=True)
class Entry:
    """One collective of the default group, in the order in which this rank called them.

    number: from 1. op: `all_reduce`, or `gradients` and `buffers` for what DistributedDataParallel does inside.
    about: type and size of what travels, "" where ranks may differ in it. place: the user's `file:line`.
    step: optimizer steps that this rank had done. since_ns: when it was called.
    """

    number: int
    op: str
    about: str
    place: str
    step: int
    since_ns: int


@dataclass(frozen=True)
class Reading:
    """What one rank has marked.

    beats: marks so far; beat_ns: when it made the last. phase: since phase_ns. evaluating: its model is in eval mode.
    step: optimizer steps done; steps: (number, end, arrival at its first collective), newest last, at most 32.
    batches: taken from loaders; data_ns: time spent in waiting for them. count: collectives called on the default
    group; inside: the number of the one that it has not come back from, 0 for none. comparable: False where ranks may
    call different ones (`join`). queued: a collective returns before it is done (nccl): a rank waits for it elsewhere.
    entries: the newest collectives. now: the collective of another group that it is in, else "".
    digests: (step, digest of the parameters), newest last.
    """

    beats: int
    beat_ns: int
    phase: Phase
    phase_ns: int
    evaluating: bool
    step: int
    batches: int
    data_ns: int
    count: int
    inside: int
    comparable: bool
    queued: bool
    steps: tuple[tuple[int, int, int], ...]
    entries: tuple[Entry, ...]
    now: str
    digests: tuple[tuple[int, int], ...]


class Board:
    """All slots of one machine.

    Args:
        folder: where the file lies. num_ranks: ranks of this machine.
        make: True in the launcher, before the ranks start.
    """

    def __init__(self, folder: Path, num_ranks: int, make: bool = False) -> None:
        self.num_ranks = num_ranks
        size = _HEADER + num_ranks * _SLOT
        if make:
            # In memory only: in a file on a disk, a mark could wait for the disk. It goes with the launcher.
            self._memory = os.memfd_create("lockstep-board")
            os.posix_fallocate(self._memory, 0, size)
            (folder / _FILE).symlink_to(f"/proc/{os.getpid()}/fd/{self._memory}")
            weakref.finalize(self, _end, folder / _FILE, self._memory, os.getpid())
        handle = os.open(folder / _FILE, os.O_RDWR)
        try:
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)

    def ask_stop(self) -> None:
        """Ask every rank to end after saving."""
        self._map[0] = 1

    @property
    def stop_asked(self) -> bool:
        """Whether the launcher has asked for an end."""
        return self._map[0] != 0

    def marks(self, rank_of_node: int) -> "Marks":
        """The pen of one rank."""
        return Marks(self._map, _HEADER + rank_of_node * _SLOT)

    def read(self, rank_of_node: int) -> Reading:
        """One rank's slot; read again where the rank wrote meanwhile, and then taken as it is."""
        start = _HEADER + rank_of_node * _SLOT
        for _ in range(4):
            raw = self._map[start : start + _SLOT]
            if _NUMBERS.unpack_from(self._map, start)[0] == _NUMBERS.unpack_from(raw, 0)[0]:
                break
        return _parse(raw)


def _end(link: Path, memory: int, pid: int) -> None:
    if os.getpid() == pid:
        link.unlink(missing_ok=True)
        os.close(memory)


def _parse(raw: bytes) -> Reading:
    beats, beat_ns, phase, phase_ns, evaluating, step, steps, batches, data_ns, count, inside, wild, queued, sames = (
        _NUMBERS.unpack_from(raw, 0)
    )
    entries = []
    for number in range(max(1, count - _RING + 2), count + 1):  # the oldest may be written over at this moment
        kept, of_step, since_ns, _, text = _ENTRY.unpack_from(raw, _ENTRIES_AT + (number % _RING) * _ENTRY.size)
        parts = text.rstrip(b"\0").decode("utf-8", "replace").split("\t")
        if kept == number and len(parts) == 3:
            entries.append(Entry(number, parts[0], parts[1], parts[2], of_step, since_ns))
    return Reading(
        beats=beats,
        beat_ns=beat_ns,
        phase=Phase(phase),
        phase_ns=phase_ns,
        evaluating=bool(evaluating),
        step=step,
        batches=batches,
        data_ns=data_ns,
        count=count,
        inside=inside,
        comparable=not wild,
        queued=bool(queued),
        steps=tuple(
            _STEP.unpack_from(raw, _STEPS_AT + (number % _RING) * _STEP.size)
            for number in range(max(0, steps - _RING), steps)
        ),
        entries=tuple(entries),
        now=raw[_NOW_AT : _NOW_AT + _TEXT].rstrip(b"\0").decode("utf-8", "replace"),
        digests=tuple(
            _SAME.unpack_from(raw, _SAMES_AT + (number % _RING) * _SAME.size)
            for number in range(max(0, sames - _RING), sames)
        ),
    )


class Marks:
    """The pen of one rank: each call writes a few bytes, about a microsecond."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._map, self._start = memory, start
        self.phase, self.phase_ns, self.evaluating = Phase.START, time.monotonic_ns(), False
        self.step = self.count = self.batches = self.data_ns = 0
        self._beats = self._steps = self._sames = 0
        self._inside, self._wild, self._queued = 0, False, False
        self._arrived_ns = 0
        self._write()

    def enter(self, phase: Phase) -> Phase:
        """Begin a phase; returns the one before, to go back to."""
        if phase == Phase.START and self.step:
            phase = Phase.SCRIPT
        before, self.phase, self.phase_ns = self.phase, phase, time.monotonic_ns()
        self._write()
        return before

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """Be in a phase for the block."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def took_batch(self, waited_ns: int) -> None:
        """A batch has come from a loader."""
        self.batches += 1
        self.data_ns += waited_ns

    def stepped(self) -> None:
        """An optimizer step is done."""
        self.step += 1
        now = time.monotonic_ns()
        at = self._start + _STEPS_AT + (self._steps % _RING) * _STEP.size
        self._put(at, _STEP.pack(self.step, now, self._arrived_ns or now))
        self._arrived_ns = self._inside = 0
        self._steps += 1
        self.evaluating = False
        self._write()

    @contextmanager
    def collective(self, op: str, about: str, place: str) -> Iterator[None]:
        """Be inside a collective of the default group."""
        self.count += 1
        now = time.monotonic_ns()
        self._arrived_ns = self._arrived_ns or now
        text = "\t".join((op, about, place[-120:])).encode()[:_TEXT]
        at = self._start + _ENTRIES_AT + (self.count % _RING) * _ENTRY.size
        self._put(at, _ENTRY.pack(self.count, self.step, now, 0, text))
        outer, self._inside = self._outer(), self.count
        with self.within(Phase.COLLECTIVE if op != "gradients" else Phase.BACKWARD):
            yield
        # Not after an exception: what a failing rank was in stays to be read.
        self._inside = outer
        self._write()

    @contextmanager
    def again(self, phase: Phase = Phase.BACKWARD) -> Iterator[None]:
        """Be inside the last collective once more: what it began is waited for."""
        outer, self._inside = self._outer(), self.count
        with self.within(phase):
            yield
        self._inside = outer
        self._write()

    @contextmanager
    def elsewhere(self, op: str, place: str) -> Iterator[None]:
        """Be inside a collective of another group, or in one between two ranks."""
        self._now(f"{op}\t{place[-120:]}")
        try:
            with self.within(Phase.COLLECTIVE):
                yield
        finally:
            self._now("")

    def _outer(self) -> int:
        """The collective around the next one; what an exception has left behind is none."""
        return self._inside if self.phase in WAITING else 0

    def queues(self) -> None:
        """From now on collectives return before they are done."""
        self._queued = True

    def incomparable(self) -> None:
        """From now on ranks may call different collectives, and be right."""
        self._wild = True

    def digest(self, step: int, value: int) -> None:
        """The parameters after a step, as 64 bits."""
        self._put(self._start + _SAMES_AT + (self._sames % _RING) * _SAME.size, _SAME.pack(step, value))
        self._sames += 1
        self._write()

    def _now(self, text: str) -> None:
        at = self._start + _NOW_AT
        self._map[at : at + _TEXT] = text.encode()[:_TEXT].ljust(_TEXT, b"\0")

    def _put(self, at: int, data: bytes) -> None:
        # `pack_into` would fill the place with zeros first, and the launcher may read it at that moment.
        self._map[at : at + len(data)] = data

    def _write(self) -> None:
        self._beats += 1
        numbers = _NUMBERS.pack(
            self._beats,
            time.monotonic_ns(),
            self.phase,
            self.phase_ns,
            self.evaluating,
            self.step,
            self._steps,
            self.batches,
            self.data_ns,
            self.count,
            self._inside,
            self._wild,
            self._queued,
            self._sames,
        )
        self._put(self._start, numbers)
