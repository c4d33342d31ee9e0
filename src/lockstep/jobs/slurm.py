"""A job as a Slurm batch script: one launcher on each node, saved and requeued when it is preempted."""

import shlex
import sys
from dataclasses import dataclass

from lockstep.jobs.wants import Program, Wants

MAX_REQUEUES = 100

_BODY = """\
# One launcher on each node starts the ranks of its node. Nodes, ranks and meeting point come from Slurm's variables.
# --kill-on-bad-exit=0: a launcher that has ended must not take along one that still saves; each ends by itself.
step='' asked=''
trap 'asked=1; [ -z "$step" ] || kill -USR1 "$step"' USR1  # srun hands it on: save and end. SIGTERM would make it kill.
trap : TERM  # the launchers have got it from Slurm too; the script only waits for them
{command} &
step=$!
[ -z "$asked" ] || kill -USR1 "$step"
while kill -0 "$step" 2>/dev/null; do wait "$step"; done
wait "$step"
code=$?

# 75: it has saved and wants to go on. The requeued job runs this script again, which resumes in the same folder.
# A job that somebody has cancelled is no longer RUNNING; it saves too, but it must not come back.
state=$(scontrol --oneliner show job "$SLURM_JOB_ID" | grep -oE 'JobState=[A-Z_]+|Reason=TimeLimit')
if [ "$code" -eq 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {max_requeues} ]; then
  case "$state" in
    *RUNNING* | *TimeLimit*)
      scontrol requeue "$SLURM_JOB_ID" && echo "lockstep: saved; job $SLURM_JOB_ID waits in the queue again" ;;
  esac
fi
exit "$code"
"""


@dataclass(frozen=True)
class SlurmWants:
    """What only Slurm knows.

    time, partition, account, memory: as its options of these names; "" for the cluster's own. signal_s: how long before
    the end the job is told to save. setup: lines of shell that come first (`module load ...`). extra: further options
    of sbatch, each with its dashes.
    """

    time: str = ""
    partition: str = ""
    account: str = ""
    memory: str = ""
    signal_s: int = 120
    setup: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    max_requeues: int = MAX_REQUEUES


def batch_script(program: Program, wants: Wants, slurm: SlurmWants, folder: str) -> str:
    """The whole script, as `sbatch` takes it.

    Args:
        folder: where it was submitted, an absolute path that all nodes see.
    """
    parts = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(program, wants, slurm, folder)), ""]
    parts += [*slurm.setup, ""] if slurm.setup else []
    if program.config:
        parts += _config_lines(program)
    body = _BODY.format(command=_command(program, wants), max_requeues=slurm.max_requeues)
    return "\n".join(parts) + "\n" + body


def _options(program: Program, wants: Wants, slurm: SlurmWants, folder: str) -> list[str]:
    values = {
        "job-name": wants.name,
        "chdir": folder,
        "nodes": wants.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": wants.gpus or "",
        "cpus-per-task": wants.cpus or "",
        "mem": slurm.memory,
        "time": slurm.time,
        "partition": slurm.partition,
        "account": slurm.account,
        "signal": f"B:USR1@{slurm.signal_s}",
        "open-mode": "append",
        "output": output_file(program, wants.name),
    }
    quoted = [f"--{name}={_quoted(str(value))}" for name, value in values.items() if value != ""]
    return [*quoted, "--requeue", *slurm.extra]


def output_file(program: Program, name: str) -> str:
    """What the job prints goes here; `%j` is its number. Slurm does not make the folder."""
    return f"{program.run_dir}/{name}-%j.txt"


def config_file(program: Program) -> str:
    """Where the job writes its config."""
    return f"{program.run_dir}/job.yaml"


def _config_lines(program: Program) -> list[str]:
    mark = "END_OF_CONFIG"
    while mark in program.config:
        mark += "_"
    file = shlex.quote(config_file(program))
    about = "# The config as it was when the job was submitted."
    return [about, f"cat > {file} <<'{mark}'", program.config.rstrip("\n"), mark, ""]


def _command(program: Program, wants: Wants) -> str:
    # srun does not take the number of CPUs from the job since Slurm 22.05.
    srun = ["srun", "--ntasks-per-node=1", *([f"--cpus-per-task={wants.cpus}"] if wants.cpus else [])]
    srun += ["--kill-on-bad-exit=0"]
    ranks = ["--nproc", str(wants.ranks)] if wants.ranks else []
    ranks += ["--restarts", str(wants.restarts)] if wants.restarts else []
    if program.verb == "run":
        ranks += ["--log-dir", f"{program.run_dir}/logs"]
    words = [sys.executable, "-m", "lockstep", program.verb, *ranks, *program.words]
    return f"{shlex.join(srun)} \\\n  {shlex.join(words)}"


def _quoted(value: str) -> str:
    """sbatch splits its lines at blanks, as a shell does."""
    return value if not set(value) & set(" \t'\"\\#") else '"' + value.replace('"', '\\"') + '"'
