"""Which tests may run side by side, and which share a worker."""

from typing import Any

# `make test-all` runs these by themselves, after all others: they hold seconds against a bound, or look at what the
# whole machine has (processes, ports, shared memory), which other tests would change. A path, or the beginning of one.
ALONE = (
    "core/report/test_browser.py",
    "launch/",
    "proof/test_aftermath.py",
    "proof/test_fault.py",
    "proof/test_programs.py::test_a_right_program_is_proven[right/mp_spawn",
    "runtime/data/test_shield.py",
    "runtime/test_stopping.py",
    "runtime/test_world.py",
    "test_bench.py",
    "test_doctor.py",
    "test_police.py",
    "test_ranks.py",
    "test_run.py",
    "test_submit.py",
    "test_train_again.py",
)
# Long files whose cases share nothing but the program that stands in the brackets.
BY_CASE = ("tests/proof/test_programs.py", "tests/rules/test_twins.py")


def group(nodeid: str) -> str:
    """What goes to one worker: a file, whose fixtures start ranks for all of it; of some files a case."""
    file, _, test = nodeid.partition("::")
    case = test.partition("[")[2].removesuffix("]").rpartition("/")[2]
    return f"{file}[{case}]" if file in BY_CASE and case else file


def scheduler(config: Any, log: Any) -> Any:
    """The scheduler of pytest-xdist that follows `group`; its own `--dist loadgroup` does nothing with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return ByGroup(config, log)
