"""Everything that one machine is looked at for."""

from collections.abc import Callable, Iterable

from lockstep.launch.health import (
    clock,
    cores,
    disk,
    earlier,
    gpus,
    interfaces,
    limits,
    meeting,
    memory,
    names,
    smi,
    stacks,
    versions,
)
from lockstep.launch.health.check import Asked, Check

CHECKS: tuple[Callable[[Asked], Iterable[Check]], ...] = (
    versions.checks,
    gpus.checks,
    cores.checks,
    memory.checks,
    limits.checks,
    meeting.checks,
    names.checks,
    interfaces.checks,
    clock.checks,
    disk.checks,
    stacks.checks,
    earlier.checks,
)


def look(asked: Asked) -> list[Check]:
    """All checks of this machine, in the order of the report. Takes some seconds; starts no rank."""
    return [check for checks in CHECKS for check in checks(asked)]


def facts() -> dict[str, str]:
    """What has to be equal on all nodes."""
    found = versions.facts()
    if gpu := smi.gpus():
        found |= {"driver": gpu[0].driver, "GPUs": f"{len(gpu)} x {gpu[0].name}"}
    return found
