"""What became of a job, in the scheduler's own words, and what it printed."""

import re
from collections import deque
from pathlib import Path

from lockstep.core.errors import UserError, explain
from lockstep.jobs import tools
from lockstep.jobs.record import JobRecord


def state(record: JobRecord) -> str:
    """One line about the job: its state, where it runs, how often it was requeued."""
    return _slurm_state(record) if record.kind == "slurm" else _kubernetes_state(record)


def logs(record: JobRecord, lines: int) -> str:
    """The last lines of what the job printed.

    Raises:
        UserError: it has printed nothing yet.
    """
    if record.kind == "kubernetes":
        selector = f"jobset.sigs.k8s.io/jobset-name={record.name}"
        return tools.call(["kubectl", "logs", *_namespace(record), "-l", selector, "--prefix", f"--tail={lines}"])
    try:
        with Path(record.output).open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, lines))
    except OSError as error:
        seen = f"{record.output} cannot be read: {error.strerror}"
        must = "a job that has started has made it"
        raise UserError(explain(seen, must, next_step=f"lockstep submit status {record.id}")) from None


def _slurm_state(record: JobRecord) -> str:
    code, said, _ = tools.ask(["scontrol", "--oneliner", "show", "job", record.id])
    fields = dict(word.partition("=")[::2] for word in said.split()) if code == 0 else {}
    if not fields:
        return _past_slurm_state(record)
    parts = [fields.get("JobState", "UNKNOWN")]
    if parts[0] == "PENDING":
        parts.append(f"reason {fields.get('Reason', 'unknown')}")
    if (nodes := fields.get("NodeList", "(null)")) not in ("", "(null)"):
        parts.append(f"on {nodes}")
    parts.append(f"ran {fields.get('RunTime', '?')} of {fields.get('TimeLimit', '?')}")
    if (restarts := fields.get("Restarts", "0")) != "0":
        parts.append(f"requeued {restarts} time{'s' * (restarts != '1')}")
    if fields.get("ExitCode", "0:0") != "0:0":
        parts.append(f"exit code {fields['ExitCode']}")
    return ", ".join(parts)


def _past_slurm_state(record: JobRecord) -> str:
    """Slurm forgets a job some minutes after its end, but for clusters that keep accounts."""
    try:
        command = ["sacct", "-n", "-X", "-P", "-j", record.id, "-o", "State,ExitCode,Elapsed"]
        code, said, _ = tools.ask(command)
    except UserError:
        code, said = 1, ""
    last = said.strip().splitlines()[-1:] if code == 0 else []
    if not last:
        return "ended; Slurm no longer knows it, its output does"
    found, exit_code, elapsed = (*last[0].split("|"), "", "")[:3]
    return f"{found}, ran {elapsed}, exit code {exit_code}"


def _kubernetes_state(record: JobRecord) -> str:
    path = r"jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}{'\n'}{end}"
    said = tools.call(["kubectl", "get", "trainjob", record.name, *_namespace(record), "-o", path])
    true = [match.groups() for match in re.finditer(r"^(\w+)=True ?(.*)$", said, re.MULTILINE)]
    if not true:
        return "Running or waiting for its pods: kubectl get pods shows them"
    kind, reason = true[-1]
    return f"{kind}, {reason}" if reason else str(kind)


def _namespace(record: JobRecord) -> list[str]:
    return ["--namespace", record.namespace] if record.namespace else []
