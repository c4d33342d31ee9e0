"""The workers of a scan: tasks handed out, answers taken in, the dead and the stuck replaced."""

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.data.named import where_of
from lockstep.runtime.recipe import Batching
from lockstep.runtime.scanning.finding import Finding
from lockstep.runtime.scanning.read import Read
from lockstep.runtime.scanning.reading import Source
from lockstep.runtime.scanning.tasks import Backlog
from lockstep.runtime.scanning.worker import ONE, SEVERAL, Block, Board, Pair, Refused, Task, Verdict, Worker

_LOOK_S = 0.1
_MOST_LOST = 20
"""Workers lost one after the other, without a block read in between, after which a scan gives up."""


class Crew:
    """Worker processes, and whom to name when one is lost.

    Args:
        sources: the splits.
        recipe: gives `collate` and `labels`.
        seed: of the run.
        num_workers: how many processes.
        timeout_s: the longest that one sample may take.
        tick: called ten times a second with the samples that are begun in blocks that are out.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        recipe: Batching,
        seed: int,
        num_workers: int,
        timeout_s: float,
        tick: Callable[[int], None],
    ) -> None:
        self.sources, self.recipe, self.seed, self.timeout_s, self.tick = sources, recipe, seed, timeout_s, tick
        self.board = Board(num_workers)
        self.lost_in_a_row = 0
        self._num_workers = num_workers
        self._workers: list[Worker] = []
        self._looked = 0.0

    def read(self, came: Callable[[Read, list[int]], None], found: Callable[[Finding], None]) -> None:
        """Read all splits.

        Args:
            came: takes what a block came to, and a list that is kept for its worker and split.
            found: takes a sample that a worker was lost with.

        Raises:
            RunError: where workers are lost one after the other, and nothing is read.
            UserError: where the recipe is wrong, not a sample.
        """
        backlogs = {source.split: Backlog(source, self._num_workers) for source in self.sources}

        def next_task(worker: int) -> Block | None:
            return next((block for one in backlogs.values() if (block := one.take(worker)) is not None), None)

        def answered(worker: Worker, task: Task, answer: Read | Verdict) -> None:
            assert isinstance(answer, Read)
            backlogs[answer.split].came(answer)
            came(answer, worker.known.setdefault(answer.split, []))

        def lost(task: Task, at: int | None, several: bool, reason: str, final: bool) -> None:
            assert isinstance(task, Block)
            second = task.one_by_one and len(task.indices) == 1
            final = final or second or backlogs[task.split].source.length is None
            backlogs[task.split].lost(task, at, several, again=not final)
            if at is not None and final:
                found(self._finding(task.split, at, reason))

        self._run(next_task, answered, lost, lambda: all(one.over for one in backlogs.values()))

    def compare(self, pairs: Iterable[Pair]) -> dict[Pair, str | None]:
        """Ask of each pair why its samples cannot be in one batch; None where they can."""
        waiting = list(pairs)[::-1]
        total, reasons = len(waiting), dict[Pair, str | None]()

        def answered(worker: Worker, task: Task, answer: Read | Verdict) -> None:
            assert isinstance(task, Pair) and isinstance(answer, Verdict)
            reasons[task] = answer.reason

        def lost(task: Task, at: int | None, several: bool, reason: str, final: bool) -> None:
            assert isinstance(task, Pair)
            reasons[task] = f"a batch of both {reason}"

        self._run(lambda _: waiting.pop() if waiting else None, answered, lost, lambda: len(reasons) == total)
        return reasons

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().end()

    def _run(
        self,
        next_task: Callable[[int], Task | None],
        answered: Callable[[Worker, Task, Read | Verdict], None],
        lost: Callable[[Task, int | None, bool, str, bool], None],
        over: Callable[[], bool],
    ) -> None:
        while not over():
            for number in range(self._num_workers):
                worker = self._workers[number] if number < len(self._workers) else None
                if worker is None or worker.task is None:
                    task = next_task(number)
                    if task is not None:
                        worker = worker or self._start(number)
                        worker.give(task, self.board)
            busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
            for pipe in wait(list(busy), _LOOK_S):
                worker = busy[pipe]  # type: ignore[index]  # `wait` gives back what it was given
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.gone, self._looked = True, 0.0
                    continue
                if isinstance(answer, Refused):
                    raise UserError(answer.message)
                task, worker.task, self.lost_in_a_row = worker.task, None, 0
                assert task is not None
                answered(worker, task, answer)
            self._look(lost)

    def _start(self, number: int) -> Worker:
        others = [worker.pipe for worker in self._workers if worker.number != number]
        worker = Worker(number, self.sources, self.recipe, self.seed, self.board, others)
        self._workers[number : number + 1] = [worker]
        return worker

    def _look(self, lost: Callable[[Task, int | None, bool, str, bool], None]) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for worker in self._workers:
            task = worker.task
            if task is None:
                continue
            state, index, since, _ = self.board.rows[worker.number]
            late = now - since > self.timeout_s
            if not worker.gone and (not late or worker.pipe.poll()):
                continue  # at work; or it has answered at the last moment
            reason = _why(worker.end())
            if late:
                reason = f"took more than {self.timeout_s:g} s"
            self._start(worker.number)
            self._count_lost(reason)
            lost(task, int(index) if state == ONE else None, state == SEVERAL, reason, late)
        self.tick(int(sum(self.board.rows[worker.number][3] for worker in self._workers if worker.task is not None)))

    def _count_lost(self, reason: str) -> None:
        self.lost_in_a_row += 1
        if self.lost_in_a_row < _MOST_LOST:
            return
        seen = f"{_MOST_LOST} workers were lost one after the other; the last one {reason}"
        must = "a worker reads one sample after the other"
        raise RunError(explain(seen, must, next_step="read one sample by hand; more memory, fewer --workers"))

    def _finding(self, split: str, index: int, reason: str) -> Finding:
        kind = "slow" if reason.startswith("took") else "fatal"
        source = next(source for source in self.sources if source.split == split)
        if source.length is None:
            reason += "; the stream was not read further"
        return Finding(kind, split, index, where_of(source.data, index), f"reading it {reason}")


def _why(code: int) -> str:
    if code >= 0:
        return f"ended the process with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended the process with {name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
