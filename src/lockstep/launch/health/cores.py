"""CPU cores against ranks and their threads."""

import os

import psutil

from lockstep.launch.health import cgroups
from lockstep.launch.health.check import Asked, Check
from lockstep.runtime.world import num_cores


def checks(asked: Asked) -> list[Check]:
    """Whether the ranks have a core each, and their threads too."""
    physical = psutil.cpu_count(logical=False) or 0
    load = os.getloadavg()[0]
    return judge(asked, num_cores(), physical, cgroups.cpus(), load)


def judge(asked: Asked, cores: int, physical: int, quota: float | None, load: float) -> list[Check]:
    """cores: that this process may run on. physical: of the machine, 0 if unknown. quota: cores' worth of time that
    its group may use, None without limit. load: processes that want to run, mean of the last minute."""
    ranks = asked.ranks_per_node
    usable = cores if quota is None else min(cores, quota)
    seen = f"{cores} cores" + (f" ({physical} physical)" if physical and physical != cores else "")
    seen += f", time of {quota:g} of them (control group)" if quota is not None and quota < cores else ""
    seen += f", load {load:.1f}, {ranks} {'rank' if ranks == 1 else 'ranks'}"
    found = [Check("CPU", "cores", "ok", seen)]
    if ranks > usable:
        found = [Check("CPU", "cores", "warn", seen, f"at most {max(1, int(usable))} ranks, or they take turns")]
    elif quota is not None and quota < cores / 2:
        advice = f"threads are counted by cores: set OMP_NUM_THREADS={max(1, int(quota / ranks))}"
        found = [Check("CPU", "cores", "warn", seen, advice)]
    return [*found, _threads(asked, usable)]


def _threads(asked: Asked, usable: float) -> Check:
    text, ranks = asked.environ.get("OMP_NUM_THREADS"), asked.ranks_per_node
    fit = max(1, int(usable / ranks))
    if text is None:
        seen = f"OMP_NUM_THREADS is not set: torchrun gives a rank 1 thread, `lockstep train` {fit}"
        return Check("CPU", "threads", "ok", seen)
    if not text.isdecimal() or int(text) < 1:
        return Check("CPU", "threads", "fail", f"OMP_NUM_THREADS is {text!r}", f"unset it, or set it to {fit}")
    seen = f"OMP_NUM_THREADS={text}, {ranks} ranks"
    if int(text) * ranks > usable and int(text) > 1:
        return Check("CPU", "threads", "warn", f"{seen}: more threads than cores", f"OMP_NUM_THREADS={fit}")
    return Check("CPU", "threads", "ok", seen)
