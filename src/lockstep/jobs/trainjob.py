"""A job as a Kubeflow Trainer `TrainJob`: one pod for each node, one launcher in each pod.

The runtime (`torch-distributed` of Trainer 2.2 or later) tells every pod the number of pods, its own number and where
pod 0 is. The job itself says how many pods, what runs in them, and which volumes they share.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from lockstep.core.errors import UserError, explain
from lockstep.jobs.wants import Program, Wants

MANAGER = "lockstep/submit"
CONFIG_FOLDER = "/etc/lockstep"
SHARED_MEMORY = "/dev/shm"
RESERVED = frozenset({"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"})
_CONTAINER = "node"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class PodWants:
    """What only Kubernetes knows.

    image: of the container; it holds Python, Lockstep and what the recipe or the script needs. namespace: "" for the
    one that kubectl is set to. pvc: the claim whose volume is mounted at `mount` in all pods; the run's folder lies on
    it. runtime: the cluster's training runtime. memory: of each pod, such as `64Gi`; "" for the cluster's own.
    grace_s: between SIGTERM and SIGKILL, the time to save. env: further variables.
    """

    image: str
    pvc: str
    mount: str = "/data"
    namespace: str = ""
    runtime: str = "torch-distributed"
    memory: str = ""
    grace_s: int = 120
    env: tuple[tuple[str, str], ...] = ()


def documents(program: Program, wants: Wants, pods: PodWants) -> str:
    """The YAML that `kubectl apply -f -` takes: the config, where there is one, and the job."""
    parts = [_config_map(program, wants, pods)] if program.config else []
    return yaml.dump_all([*parts, train_job(program, wants, pods)], Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """As people write it: long texts line by line, and no references from one place to another."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out, also the second time."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def train_job(program: Program, wants: Wants, pods: PodWants) -> Manifest:
    """The `TrainJob` itself.

    Raises:
        UserError: a variable that the runtime sets was given.
    """
    if taken := sorted(RESERVED & {name for name, _ in pods.env}):
        raise UserError(explain(f"--env {taken[0]}", "the runtime sets this variable itself", next_step="leave it out"))
    trainer: Manifest = {
        "image": pods.image,
        "command": ["python", "-m", "lockstep", program.verb],
        "args": [*(["--restarts", str(wants.restarts)] if wants.restarts else []), *program.words],
        "numNodes": wants.nodes,
        "numProcPerNode": wants.ranks_per_node,
    }
    if resources := _resources(wants, pods):
        trainer["resourcesPerNode"] = resources
    if pods.env:
        trainer["env"] = [{"name": name, "value": value} for name, value in pods.env]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(wants.name, pods),
        "spec": {
            "runtimeRef": {"name": pods.runtime},
            "trainer": trainer,
            "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": _patch(program, wants, pods)}],
        },
    }


def config_path() -> str:
    """Where a pod finds the config of its job."""
    return f"{CONFIG_FOLDER}/job.yaml"


def _metadata(name: str, pods: PodWants) -> Manifest:
    return {"name": name, **({"namespace": pods.namespace} if pods.namespace else {})}


def _config_map(program: Program, wants: Wants, pods: PodWants) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(config_map_name(wants.name), pods),
        "data": {"job.yaml": program.config},
    }


def config_map_name(name: str) -> str:
    """The name of what holds a job's config."""
    return f"{name}-config"


def _resources(wants: Wants, pods: PodWants) -> Manifest:
    amounts = {"cpu": wants.cpus, "memory": pods.memory, "nvidia.com/gpu": wants.gpus}
    given = {name: str(amount) for name, amount in amounts.items() if amount}
    return {"requests": given, "limits": given} if given else {}


def _patch(program: Program, wants: Wants, pods: PodWants) -> Manifest:
    """Volumes and the time to save. Loader workers hand batches over in shared memory; a pod's own has only 64 MiB."""
    volumes: list[Manifest] = [
        {"name": "runs", "persistentVolumeClaim": {"claimName": pods.pvc}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [
        {"name": "runs", "mountPath": pods.mount},
        {"name": "shared-memory", "mountPath": SHARED_MEMORY},
    ]
    if program.config:
        volumes.append({"name": "config", "configMap": {"name": config_map_name(wants.name)}})
        mounts.append({"name": "config", "mountPath": CONFIG_FOLDER})
    pod = {
        "terminationGracePeriodSeconds": pods.grace_s,
        "volumes": volumes,
        "containers": [{"name": _CONTAINER, "volumeMounts": mounts}],
    }
    job = {"name": _CONTAINER, "template": {"spec": {"template": {"spec": pod}}}}
    return {"template": {"spec": {"replicatedJobs": [job]}}}


def check_mount(text: str) -> str:
    """An absolute folder inside the pods.

    Raises:
        UserError: where it is none.
    """
    if not re.fullmatch(r"(/[\w.-]+)+", text):
        raise UserError(explain(f"--mount {text}", "an absolute folder, such as /data"))
    return text
