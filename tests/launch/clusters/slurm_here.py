"""A real Slurm with two nodes on this machine, for the time of a test: munged, slurmctld and two slurmd."""

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

Daemon = subprocess.Popen[bytes]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
START_S = 30.0
TRIES = 3
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_LIBC = ctypes.CDLL(None)

CONF = """\
ClusterName=lockstep
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdTimeout=60
MessageTimeout=20
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=30 State=UP
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF State=UP
"""


class CannotStartError(Exception):
    """Why this machine cannot run a Slurm of its own."""


@dataclass(frozen=True)
class Slurm:
    """A running cluster. env: the environment for its commands. folder: its configuration and logs."""

    folder: Path
    env: dict[str, str]

    def ask(self, *command: str, timeout_s: float = 30.0) -> str:
        """The output of one of Slurm's commands; raises where it fails."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def job(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says, by field."""
        words = self.ask("scontrol", "-o", "show", "job", job_id).split()
        return {word.partition("=")[0]: word.partition("=")[2] for word in words}

    def await_state(self, job_id: str, *states: str, within_s: float = 60.0) -> str:
        """Wait until the job is in one of these states."""
        deadline = time.monotonic() + within_s
        while (state := self.job(job_id)["JobState"]) not in states:
            assert time.monotonic() < deadline, f"job {job_id} is {state}, not {states}\n{self.logs()}"
            time.sleep(0.2)
        return state

    def cancel_all(self) -> None:
        """End all jobs, so that no process of theirs outlives the test or the daemons."""
        with suppress(subprocess.SubprocessError):
            for command in (["scancel", "--full", "-s", "KILL", "-u", "root"], ["scancel", "-u", "root"]):
                subprocess.run(command, env=self.env, timeout=20, capture_output=True, check=False)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                left = subprocess.run(["squeue", "-h"], env=self.env, timeout=20, capture_output=True, check=False)
                if not left.stdout.strip():
                    return
                time.sleep(0.2)

    def logs(self) -> str:
        """The last lines of every daemon's log."""
        texts = [f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.log")]
        return "\n".join(texts)


def reason_against() -> str:
    """Why no Slurm can be started here; "" where one can."""
    if os.geteuid() != 0:
        return "not root: slurmd and munged need it"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)" if missing else ""


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Start the cluster; end it and all that runs in it on every way out.

    Raises:
        CannotStartError: with what the daemons said.
    """
    if reason := reason_against():
        raise CannotStartError(reason)
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="two-node-slurm-", ignore_cleanup_errors=True))
        Path(folder).chmod(0o755)
        yield _started(Path(folder), ends)


def _started(folder: Path, ends: ExitStack) -> Slurm:
    """Another process may take a port between the look and the daemon's start; then all is tried again."""
    for attempt in range(TRIES):
        here = folder / str(attempt)
        here.mkdir(mode=0o755)
        running = Slurm(here, {**os.environ, "PATH": _PATH, "SLURM_CONF": str(here / "slurm.conf")})
        with ExitStack() as own:
            own.callback(_end_strays, here)
            _write(here)
            try:
                _start(running, own)
            except CannotStartError:
                if attempt + 1 == TRIES:
                    raise
                continue
            own.callback(running.cancel_all)
            ends.push(own.pop_all())
            return running
    raise AssertionError


def _write(folder: Path) -> None:
    for name in ("state", "munge", "spool-n1", "spool-n2"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    host = socket.gethostname().partition(".")[0]
    # Ports of jobs follow from their numbers: two such clusters at a time must not count alike.
    first_job = random.randrange(1000, 60000)
    text = CONF.format(folder=folder, host=host, ports=_free_ports(3), first_job=first_job)
    (folder / "slurm.conf").write_text(text)
    # Any two devices stand in for GPUs: Slurm only hands them out and sets its variables.
    (folder / "gres.conf").write_text("AutoDetect=off\nName=gpu File=/dev/null\nName=gpu File=/dev/zero\n")


def _free_ports(count: int) -> list[int]:
    """Ports below the range that the system hands out by itself."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10000, 20000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("", port))
            found.append(port)
    return found


def _start(here: Slurm, ends: ExitStack) -> None:
    munge = here.folder / "munge"
    options = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
    daemons = [
        _daemon(
            here, ends, "munged", "--foreground", "--force", "--num-threads=2", f"--socket={munge / 'socket'}", *options
        )
    ]
    _await(here, daemons, lambda: (munge / "socket").exists(), "munged opens its socket")
    daemons += [_daemon(here, ends, "slurmctld", "-D", "-c")]
    daemons += [_daemon(here, ends, "slurmd", "-D", "-N", node) for node in ("n1", "n2")]
    _await(here, daemons, lambda: _idle(here) == 2, "both nodes are idle")


def _daemon(here: Slurm, ends: ExitStack, name: str, *args: str) -> Daemon:
    program = shutil.which(name, path=_PATH)
    assert program is not None
    out = ends.enter_context((here.folder / f"{name}{args[-1] if name == 'slurmd' else ''}.out.log").open("w"))
    process = subprocess.Popen(
        [program, *args], env=here.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=_die_with_parent
    )
    ends.callback(_end, process)
    return process


def _die_with_parent() -> None:
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.setpgid(0, 0)


def _idle(here: Slurm) -> int:
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], env=here.env, capture_output=True, text=True, timeout=3
        )
    except subprocess.TimeoutExpired:
        return 0
    return done.stdout.split().count("idle")


def _await(here: Slurm, daemons: list[Daemon], ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        dead = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > deadline:
            why = f"ended: {dead}" if dead else f"not within {START_S:.0f} s: {what}"
            raise CannotStartError(f"{why}\n{here.logs()}")
        time.sleep(0.1)


def _end(process: Daemon) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_strays(folder: Path) -> None:
    """End what still carries this cluster's own configuration in its environment: job steps, ranks."""
    for process in strays(folder):
        with suppress(psutil.Error):
            process.kill()


def strays(folder: Path) -> list[psutil.Process]:
    """Processes that belong to the cluster of this folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("SLURM_CONF") == str(folder / "slurm.conf"):
                found.append(process)
    return found
