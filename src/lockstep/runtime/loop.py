"""The training loop: epochs, steps, evaluations, checkpoints, and the reasons to stop."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from lockstep.core.errors import RunError, UserError, explain
from lockstep.runtime.data.iterable import SplitStream
from lockstep.runtime.data.sampler import TrainSampler
from lockstep.runtime.data.transfer import ahead
from lockstep.runtime.diagnose import find_culprits, report
from lockstep.runtime.display import Display
from lockstep.runtime.evaluation import evaluate
from lockstep.runtime.journal import Journal
from lockstep.runtime.measure import Meter
from lockstep.runtime.parallel.same import SameCheck
from lockstep.runtime.session import Session
from lockstep.runtime.state.saver import Saver
from lockstep.runtime.step import MicroBatch, StepResult
from lockstep.runtime.stopping import GivenUp
from lockstep.runtime.streams import seed_rank_step
from lockstep.runtime.triage.history import History
from lockstep.runtime.triage.triage import triage

log = logging.getLogger("lockstep")


@dataclass
class Loop:
    """Runs one session to its end.

    Attributes:
        saver: writes checkpoints.
        journal: writes the numbers; None on ranks other than 0.
        display: shows them.
        on_step: called after each optimizer step with the steps done.
        stop_asked: whether this rank was asked to stop; None where nobody asks.
        preempted: whether the run stops early because a rank was; the same on every rank.
    """

    session: Session
    saver: Saver
    journal: Journal | None
    display: Display
    on_step: Callable[[int], None] | None = None
    stop_asked: Callable[[], bool] | None = None
    results: dict[str, float] = field(default_factory=dict)
    stopped_early: bool = False
    preempted: bool = False

    def run(self) -> None:
        """Train until the config says stop; the last state is saved."""
        self.meter, self.history = Meter(self.session), History()
        session = self.session
        every = session.config.parallel.check_every
        self.same = SameCheck(session.model, session.world, every, session.position.step)
        self.stopped_early = self._stale()  # a run that had stopped by itself and is resumed
        try:
            self._begin()
            while not self._done():
                self._epoch()
        except Exception as error:
            position = self.session.position
            error.add_note(f"training, epoch {position.epoch + 1}, after step {position.step}")
            raise
        self._log_rest()
        self._save()

    def _begin(self) -> None:
        """What a preempted run has left out, and a request that came before the first step."""
        if self.session.position.consumed and not self.stopped_early:
            self._between_steps()
        if self.stop_asked is not None and not self._done():
            self.preempted = any(self.session.world.gather(self.stop_asked()))

    def _done(self) -> bool:
        position, limit = self.session.position, self.session.max_steps
        trained = position.epoch >= self.session.config.stop.epochs
        return self.preempted or self.stopped_early or trained or (limit is not None and position.step >= limit)

    @property
    def ending(self) -> str:
        """Why the run is over, in a word."""
        if self.preempted:
            return "preempted"
        if self.stopped_early:
            return "stopped early"
        return "done" if self.session.position.epoch >= self.session.config.stop.epochs else "stopped"

    def _stale(self) -> bool:
        patience = self.session.config.stop.patience
        # Every rank has the same numbers; rank 0's decision is taken all the same.
        return self.session.world.broadcast(patience is not None and self.session.position.stale >= patience)

    def _epoch(self) -> None:
        session, config = self.session, self.session.config
        epoch, began_at = session.position.epoch, session.position.step
        for samples, micro_batches in self._steps():
            self._step(samples, micro_batches)
            if not self.preempted:
                self._between_steps()
            if self._done():
                break
        else:
            if session.position.step == began_at and not session.position.consumed:
                raise UserError(explain(f"epoch {epoch} has no step", "a global batch of samples", "train_data()"))
            before = session.position
            session.position = before.after_epoch()
            if config.evaluate.every_epochs and session.position.epoch % config.evaluate.every_epochs == 0:
                self._evaluate()
            if self.preempted:
                session.position = before  # the epoch ends again, with its evaluation, when the run goes on
            elif config.checkpoint.every_epochs and session.position.epoch % config.checkpoint.every_epochs == 0:
                self._save()

    def _between_steps(self) -> None:
        """The evaluation and the save that are due in the middle of an epoch."""
        if self._every(self.session.config.evaluate.every_steps):
            self._evaluate()
        if self._every(self.session.config.checkpoint.every_steps) and not self.preempted:
            self._save()

    def _every(self, steps: int | None) -> bool:
        return steps is not None and self.session.position.step % steps == 0

    def _steps(self) -> Iterator[tuple[int, list[MicroBatch]]]:
        """The steps that are left in this epoch: samples over all ranks, this rank's micro-batches."""
        session, position = self.session, self.session.position
        batches = session.train.epoch(position.epoch, position.consumed)
        pairs = ahead(batches, session.world.device, session.precision.dtype, session.config.memory.channels_last)
        source = session.train.source
        if isinstance(source, SplitStream):
            yield from self._stream_steps(pairs, source)
            return
        plan = source.plan
        for step in range(plan.num_steps):
            yield plan.size(step), self._take(pairs, plan.num_micro(step))

    def _stream_steps(
        self, pairs: Iterator[tuple[Any, Any]], source: SplitStream
    ) -> Iterator[tuple[int, list[MicroBatch]]]:
        taken = 0
        while True:
            micro_batches = self._take(pairs, source.accumulation)
            taken += len(micro_batches)
            ranks = self.session.world.gather(len(micro_batches))
            if len(set(ranks)) > 1:
                seen = f"the stream gave {', '.join(f'{n} micro-batches on rank {r}' for r, n in enumerate(ranks))}"
                raise RunError(explain(seen, "the same stream on every rank", "train_data()"))
            if not micro_batches:
                return
            # It counts once the step is done: nothing is saved before.
            self.session.state.stream = self.session.train.stream_state(taken) or self.session.state.stream
            yield source.global_batch, micro_batches

    def _take(self, pairs: Iterator[tuple[Any, Any]], count: int) -> list[MicroBatch]:
        start = time.perf_counter()
        taken = []
        for _ in range(count):
            pair = next(pairs, None)
            if pair is None:
                break
            taken.append(MicroBatch(*pair))
        self.meter.waited(time.perf_counter() - start)
        return taken

    def _step(self, samples: int, micro_batches: list[MicroBatch]) -> None:
        session = self.session
        before = session.position
        seed_rank_step(session.config.seed, session.world.rank, before.step)
        scale = float(session.precision.scaler.get_scale())
        result = session.step.run(micro_batches)
        self.history.add(before.step, scale, result)
        session.position = before.after_step(samples, result.updated)
        if result.updated and session.state.ema is not None:
            session.state.ema.update(session.position.step)
        self.same.after(session.position.step)
        self.meter.stepped(result, samples)
        if result.unused - session.unused:
            self._name_unused(result.unused - session.unused)
        if not result.updated:
            self._not_finite(samples, micro_batches, result)
        self.display.advance(session.position.step)
        if session.position.step % session.config.log.every_steps == 0:
            self._log()
        self.preempted = result.stop
        if self.on_step is not None:
            self.on_step(session.position.step)

    def _name_unused(self, names: frozenset[str]) -> None:
        self.session.unused |= names
        if self.session.world.is_main:
            step, listed = self.session.position.step - 1, ", ".join(sorted(names))
            log.info("step %d: no gradient on some rank, completed with zeros: %s", step, listed)

    def _log(self) -> None:
        position = self.session.position
        values = self.meter.summary()
        self.saver.poll()
        if self.journal is not None:
            skipped = {"skipped": position.skipped, "epoch": position.epoch}
            self.journal.record(position.step, {**values, **skipped})
        # After its last step the position stands in the next epoch, which has not begun.
        self.display.step(position.step, position.epoch if position.consumed else max(0, position.epoch - 1), values)

    def _log_rest(self) -> None:
        """The last, shorter interval; that of a preempted run goes on in the next start."""
        if self.meter.pending and not self.preempted:
            self._log()

    def _not_finite(self, samples: int, micro_batches: list[MicroBatch], result: StepResult) -> None:
        """All ranks are here together: they skipped the same step."""
        session, position, stop = self.session, self.session.position, self.session.config.stop
        # A scaler looks for its scale by overflowing now and then; only a row of it is a finding, or a bad loss.
        if session.precision.scaler.is_enabled() and position.skipped_in_row < 5:
            bad_loss = not all(math.isfinite(float(value)) for value in result.sums.values())
            if not any(session.world.gather(bad_loss)):
                return
        text, next_step = self._explain_not_finite(samples), ""
        failing = stop.nonfinite == "stop" or position.skipped_in_row >= stop.nonfinite_limit
        if failing or position.skipped_in_row > 1 or session.precision.scaler.is_enabled():
            told = triage(session, position.step - 1, micro_batches, result, self.history)
            text, next_step = "\n  ".join([text, *told.lines]), told.next_step
        if failing:
            must = f"finite, or fewer than {stop.nonfinite_limit} skipped steps in a row (stop.nonfinite)"
            raise RunError(explain(text, must, next_step=next_step))
        if session.world.is_main:
            hint = f"\n  next: {next_step}" if next_step else ""
            log.warning("%s%s\n  skipped on all ranks (%d in a row)", text, hint, position.skipped_in_row)

    def _explain_not_finite(self, samples: int) -> str:
        session, source = self.session, self.session.train.source
        step = session.position.step - 1
        if not isinstance(source, TrainSampler):
            return f"step {step}: loss or gradient is not finite, items {session.position.consumed - samples} .."
        plan = source.plan
        index = plan.step_at(session.position.consumed - samples)
        keys = [key for micro in range(plan.num_micro(index)) for key in source.keys(index, micro)]
        # A look at one sample on one rank is a forward that the other ranks would have to join.
        alone = not session.replica.paired
        parts = session.model, session.recipe, session.read, keys if alone else [], session.precision
        culprits = find_culprits(*parts)
        return report(session.world, step, keys, culprits, alone)

    def _evaluate(self) -> None:
        """Unless the end of an epoch follows an evaluation by steps: the weights are the same."""
        session, best = self.session, self.session.config.best
        if session.val is None or session.position.evaluated_at == session.position.step:
            return
        session.replica.sync_buffers()
        sampler, loader = session.val
        layout = session.config.memory.channels_last
        parts = (session.model, session.recipe, loader, sampler.batches, session.world, session.precision, layout)
        try:
            with nullcontext() if session.state.ema is None else session.state.ema.applied():
                self.results = evaluate(*parts, self.stop_asked, session.replica)
        except GivenUp:
            self.preempted = True
            return
        if best.metric is not None and best.metric not in self.results:
            must = f"one of {', '.join(sorted(self.results))}"
            raise UserError(explain(f"best.metric={best.metric} is not measured", must, "config"))
        value = None if best.metric is None else self.results[best.metric]
        session.position = session.position.after_evaluation(value, best.mode)
        self._show_results()
        self.stopped_early = self._stale()
        if self.stopped_early and session.world.is_main:
            log.info("no better %s for %d evaluations: stopping", best.metric, session.position.stale)
        if session.position.best_step == session.position.step and session.config.checkpoint.keep_best:
            self._save()
        self.meter.restart()

    def _show_results(self) -> None:
        session, position = self.session, self.session.position
        if self.journal is not None:
            self.journal.record(position.step, {**self.results, "epoch": position.epoch})
        if session.world.is_main:
            floors = {f"val/{name}": value for name, value in session.recipe.floors().items()}
            shown = [
                f"{name} {value:.4f}" + (f" (learnt nothing: {floors[name]:.2f})" if name in floors else "")
                for name, value in self.results.items()
            ]
            mark = ", best so far" if position.best_step == position.step else ""
            log.info("epoch %d, step %d: %s%s", position.epoch, position.step, ", ".join(shown), mark)

    def _save(self) -> None:
        if self.saver.saved == self.session.position:
            return
        if self._done():
            self._log_rest()  # or a resume of this run would have it to log again
        self.session.replica.sync_buffers()
        interval, source = self.meter.interval(), self.session.train.source
        notes = self.session.state.notes = {} if interval is None else {"interval": interval}
        if isinstance(source, TrainSampler):
            notes["order"] = source.signature
        self.saver.save(self.session.state, self.session.position)
        self.meter.restart()
