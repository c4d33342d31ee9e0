"""The numbers of a logging interval: global loss, speed, and where a step's time goes on every rank."""

import resource
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.runtime.session import Session
from lockstep.runtime.step import StepResult

MIB = 1024 * 1024


class Meter:
    """Gathers what happens between two log lines.

    Args:
        session: of this rank; an interval that its checkpoint was saved in is gone on with.

    Attributes:
        pending: whether there were steps since the last summary.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._clear()
        self._take_up()

    def _clear(self) -> None:
        self._sums: list[Mapping[str, Tensor]] = []
        self._counts: dict[str, float] = {}
        self._weights: Mapping[str, float] = {}
        self._samples = self._steps = 0
        self._waited_s = self._counts_s = self._busy_s = 0.0
        self._grad_norm = self._lr = 0.0
        self.pending = False
        self._since = time.perf_counter()

    def _take_up(self) -> None:
        """Go on with the interval that a checkpoint was saved in; its seconds are gone."""
        ranks = self.session.state.notes.pop("interval", None)
        if ranks is None:
            return
        rank, same = self.session.world.rank, len(ranks) == self.session.world.num_ranks
        # Ranks of another number get the sum of all once, which differs in its last digit at most.
        shares = [ranks[rank]["sums"]] if same else [one["sums"] for one in ranks] if rank == 0 else []
        device = self.session.world.device
        self._sums = [{k: torch.tensor(v, dtype=torch.float64, device=device) for k, v in s.items()} for s in shares]
        mine = ranks[0]
        self._counts, self._weights = dict(mine["counts"]), dict(mine["weights"])
        self._grad_norm, self._lr = mine["grad_norm"], mine["lr"]
        self.pending = True

    def interval(self) -> list[dict[str, Any]] | None:
        """What a checkpoint keeps of the interval, by rank; None before its first step. All ranks call it together."""
        if not self.pending:
            return None
        names = sorted(self._weights)
        sums = {name: float(sum(step[name] for step in self._sums if name in step)) for name in names}
        mine = {"sums": sums, "counts": self._counts, "weights": dict(self._weights)}
        return self.session.world.gather({**mine, "grad_norm": self._grad_norm, "lr": self._lr})

    def restart(self) -> None:
        """Leave the time since the last step out of the speed: an evaluation or a save went by."""
        self._since = time.perf_counter()

    def waited(self, seconds: float) -> None:
        """Add time that this rank waited for data."""
        self._waited_s += seconds

    def stepped(self, result: StepResult, samples: int) -> None:
        """Add one optimizer step."""
        now = time.perf_counter()
        self._busy_s += now - self._since
        self._since = now
        self._sums.append(result.sums)
        for name, count in result.counts.items():
            self._counts[name] = self._counts.get(name, 0.0) + count
        self._weights = {**self._weights, **result.weights}
        self._samples += samples
        self._steps += 1
        self.pending = True
        self._counts_s += result.comm_s
        self._grad_norm, self._lr = result.grad_norm, result.lr

    def summary(self) -> dict[str, float | list[float]]:
        """The interval's numbers, the same on every rank, and a new interval. All ranks call it together.

        Keys:
            loss: mean over every element of every sample of the interval; `loss/<term>` where there are several.
            lr, grad_norm: of the last step. samples_per_s: over all ranks.
            data_share, comm_share: part of a step that the slowest rank waits for data, and for other ranks beyond
            what backward hides; no comm_share where that cannot be told (fsdp). memory_mib: peak of each rank.
        """
        names = sorted(self._weights)
        sums = [float(sum(step[name] for step in self._sums if name in step)) for name in names]
        step_s = self._busy_s / max(1, self._steps)
        seconds = self.session.replica.communication_s()
        total_s, hidden_s = seconds or (0.0, 0.0)
        exposed_s = max(0.0, total_s - hidden_s) + self._counts_s / max(1, self._steps)
        shares = [self._waited_s / max(self._busy_s, 1e-9), min(1.0, exposed_s / max(step_s, 1e-9))]
        mine = [*sums, *shares, self._busy_s, self._memory_mib()]
        # ranks: (num_ranks, terms + 4)
        ranks = torch.tensor(self.session.world.gather(mine), dtype=torch.float64)
        means = {
            name: float(ranks[:, i].sum()) / self._counts[name] if self._counts[name] else 0.0
            for i, name in enumerate(names)
        }
        data, comm, busy, memory = ranks[:, len(names) :].unbind(1)
        values: dict[str, float | list[float]] = {"loss": sum(self._weights[n] * m for n, m in means.items())}
        if len(names) > 1:
            values |= {f"loss/{name}": mean for name, mean in means.items()}
        values |= {
            "lr": self._lr,
            "grad_norm": self._grad_norm,
            "scale": float(self.session.precision.scaler.get_scale()),
            "samples_per_s": self._samples / max(float(busy.max()), 1e-9),
            "data_share": float(data.max()),
            "comm_share": float(comm.max()),
            "memory_mib": memory.tolist(),
        }
        if seconds is None:
            del values["comm_share"]
        self._clear()
        return values

    def _memory_mib(self) -> float:
        device = self.session.world.device
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) / MIB
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
