"""A process that has imported torch once and forks a launcher for each request of the tests.

Each launcher is a process of its own, so that a test can kill it. Requests and answers are JSON lines.
"""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from lockstep.launch import launch_local, run_as_rank


def launch(request: dict[str, Any]) -> int:
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT), stream)
    os.setpgid(0, 0)
    os.environ["READY_FOLDER"] = str(Path(request["work_dir"]).parent)
    target = getattr(importlib.import_module("tests.launch.targets"), request["target"])
    if request["alone"]:
        os.environ.update(RANK="0", WORLD_SIZE="1")
        run_as_rank(target, tuple(request["args"]))
    work_dir, method = Path(request["work_dir"]), request["start_method"]
    return launch_local(target, tuple(request["args"]), request["num_ranks"], work_dir=work_dir, start_method=method)


def start(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        code = launch(request)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests themselves run under nohup
    importlib.import_module("tests.launch.targets")
    for line in sys.stdin:
        asked = json.loads(line)
        answer = wait(asked["pid"], asked["timeout_s"]) if asked["do"] == "wait" else start(asked)
        print(json.dumps(answer), flush=True)
