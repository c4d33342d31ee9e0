"""Whether py-spy may read the stack of another process: what names the line of a stuck rank."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lockstep.launch.health.check import Asked, Check
from lockstep.launch.tools import output

_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_SYS_PTRACE = 1 << 19
_SLEEPER = "import time; print(flush=True); time.sleep(60)"


def checks(asked: Asked) -> list[Check]:
    """py-spy is tried on a process that was started for it."""
    program = _py_spy()
    if program is None:
        return [
            Check("stacks", "py-spy", "warn", "not installed", "pip install py-spy: it shows where a rank is stuck")
        ]
    with subprocess.Popen([sys.executable, "-c", _SLEEPER], stdout=subprocess.PIPE) as sleeper:
        try:
            assert sleeper.stdout is not None
            sleeper.stdout.readline()
            stack = output(program, "dump", "--pid", str(sleeper.pid))
        finally:
            sleeper.kill()
    return [judge(bool(stack), _scope(), _may_trace())]


def judge(works: bool, scope: int, capable: bool) -> Check:
    """scope: kernel.yama.ptrace_scope, 0 where there is none. capable: whether this process has CAP_SYS_PTRACE."""
    if works:
        return Check("stacks", "py-spy", "ok", "reads the stack of another process")
    seen = "may not read the stack of another process"
    if capable:
        return Check("stacks", "py-spy", "warn", seen, "a security profile forbids it (seccomp): allow ptrace")
    if scope:
        advice = f"sysctl kernel.yama.ptrace_scope=0 (it is {scope}); in a container --cap-add SYS_PTRACE"
        return Check("stacks", "py-spy", "warn", seen, advice)
    return Check("stacks", "py-spy", "warn", seen, "in a container: docker run --cap-add SYS_PTRACE")


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def _scope() -> int:
    try:
        return int(_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def _may_trace() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _SYS_PTRACE)
    return False
