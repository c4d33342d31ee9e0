"""The schedulers' own commands: called, and their complaints explained."""

import subprocess
from collections.abc import Sequence

from lockstep.core.errors import RunError, UserError, explain

_TIMEOUT_S = 120.0

# Words in what a tool says (small letters) -> what to do about it. The first that fits is taken.
_ADVICE = (
    ("invalid partition", "`sinfo` lists the partitions; name one with --partition"),
    ("invalid account", "`sacctmgr show associations user=$USER` lists your accounts; name one with --account"),
    ("time limit", "`sinfo -o '%P %l'` lists the partitions' limits; ask for less with --time"),
    ("invalid generic resource", "this cluster does not offer GPUs by that name; `sinfo -o '%P %G'` lists what it has"),
    (
        "requested node configuration is not available",
        "no node has that much: fewer --gpus-per-node or --cpus-per-node",
    ),
    ("requested partition configuration not available", "ask for fewer nodes, or another --partition"),
    ("unable to contact slurm controller", "the cluster's controller does not answer: try again, or ask its operators"),
    ("establish a configuration source", "this machine is not part of a Slurm cluster: submit from its login node"),
    ("no matches for kind", "Kubeflow Trainer is not installed in this cluster: see docs/kubernetes.md"),
    ("unknown field", "the cluster's Kubeflow Trainer is older than 2.2: see docs/kubernetes.md"),
    ("forbidden", "you may not create this in the namespace: choose another with --namespace, or ask for the right"),
    ("not found", "create it first, or name another one"),
    ("connection refused", "kubectl reaches no cluster: `kubectl config current-context` says which one it tries"),
    ("already exists", "a job of this name is there: give another one with --name"),
    ("field is immutable", "a job of this name is there: give another one with --name"),
)


def call(command: Sequence[str], feed: str | None = None) -> str:
    """What the command prints.

    Args:
        command: program and arguments.
        feed: what it reads from its standard input.

    Raises:
        UserError: the program is not installed here.
        RunError: it failed; with what it said.
    """
    code, said, complaint = ask(command, feed)
    if code != 0:
        text = (complaint or said).strip()
        found = next((advice for words, advice in _ADVICE if words in text.lower()), "")
        shown = "\n    ".join(text.splitlines()[:10])
        raise RunError(explain(f"{command[0]} refused (exit code {code}):\n    {shown}", next_step=found))
    return said


def ask(command: Sequence[str], feed: str | None = None) -> tuple[int, str, str]:
    """Exit code, output and complaints of the command; for what may fail.

    Raises:
        UserError: the program is not installed here.
        RunError: it does not answer.
    """
    try:
        done = subprocess.run(
            command, input=feed, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        where = {"kubectl": "a machine with kubectl and access to the cluster"}.get(command[0], "the login node")
        must = f"{command[0]} can be called"
        next_step = f"submit from {where}, or write the file with --dry-run and carry it there"
        raise UserError(explain(f"{command[0]} is not installed here", must, next_step=next_step)) from None
    except subprocess.TimeoutExpired:
        raise RunError(explain(f"{' '.join(command)} gave no answer within {_TIMEOUT_S:.0f} s")) from None
    return done.returncode, done.stdout, done.stderr
