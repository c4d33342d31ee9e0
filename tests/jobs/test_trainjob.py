"""The manifest, judged by the models that Kubeflow Trainer publishes for its API."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api import models

from lockstep.core.errors import UserError
from lockstep.jobs.trainjob import CONFIG_FOLDER, RESERVED, PodWants, check_mount, documents, train_job
from lockstep.jobs.wants import Program, Wants
from lockstep.launch.clusters.kubernetes import nodes_from_kubernetes

TRAIN = Program(
    "train", (f"{CONFIG_FOLDER}/job.yaml", "--resume-or-start"), "/data/runs/a", "recipe: points\nseed: 0\n"
)
SCRIPT = Program("run", ("/data/train.py", "--lr", "3e-4"), "/data/runs/b")
PODS = PodWants("registry/me/train:1", "runs", namespace="lab", memory="64Gi", env=(("NCCL_DEBUG", "WARN"),))
WANTS = Wants("my-run", nodes=2, gpus=4, cpus=16)


def judged(manifest: dict[str, Any]) -> models.TrainerV1alpha1TrainJob:
    """The manifest as the API reads it; every field has to be one that it knows."""
    job = models.TrainerV1alpha1TrainJob.from_dict(manifest)
    assert job is not None
    assert job.to_dict() == manifest, "a field that the API does not know was dropped"
    return job


@pytest.mark.parametrize("program", [TRAIN, SCRIPT])
@pytest.mark.parametrize("pods", [PODS, PodWants("image", "runs")])
@pytest.mark.parametrize("wants", [WANTS, Wants("a", ranks=2)])
def test_the_api_knows_every_field(program: Program, pods: PodWants, wants: Wants) -> None:
    *_, manifest = yaml.safe_load_all(documents(program, wants, pods))
    assert manifest == train_job(program, wants, pods)
    judged(manifest)


def test_a_field_that_the_api_does_not_know_is_noticed() -> None:
    manifest = train_job(TRAIN, WANTS, PODS)
    manifest["spec"]["trainer"]["numGpus"] = 4
    with pytest.raises(AssertionError):
        judged(manifest)


def test_what_the_job_asks_for() -> None:
    trainer = judged(train_job(TRAIN, WANTS, PODS)).spec.trainer
    assert trainer is not None
    assert (trainer.image, trainer.num_nodes, trainer.num_proc_per_node) == ("registry/me/train:1", 2, 4)
    assert trainer.command == ["python", "-m", "lockstep", "train"]
    assert trainer.args == ["/etc/lockstep/job.yaml", "--resume-or-start"]
    assert trainer.resources_per_node is not None
    limits = trainer.resources_per_node.limits
    assert limits is not None
    told = {name: str(amount.actual_instance) for name, amount in limits.items()}
    assert told == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}


def test_the_pods_share_a_volume_and_have_shared_memory_and_time_to_save() -> None:
    patch = train_job(TRAIN, WANTS, PODS)["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    job = patch["template"]["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert job["name"] == pod["containers"][0]["name"] == "node"  # as in the runtime torch-distributed
    assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}
    assert volumes[mounts[CONFIG_FOLDER]]["configMap"] == {"name": "my-run-config"}
    assert pod["terminationGracePeriodSeconds"] == 120


def test_the_config_travels_with_the_job() -> None:
    text = documents(TRAIN, WANTS, PODS)
    config, job = yaml.safe_load_all(text)
    assert models.IoK8sApimachineryPkgApisMetaV1ObjectMeta.from_dict(config["metadata"]) is not None
    assert config["kind"] == "ConfigMap" and config["data"] == {"job.yaml": TRAIN.config}
    assert config["metadata"]["namespace"] == job["metadata"]["namespace"] == "lab"
    assert "    seed: 0\n" in text  # line by line, so that one can read it
    assert "&id" not in text
    assert len(list(yaml.safe_load_all(documents(SCRIPT, WANTS, PODS)))) == 1


def test_variables_of_the_runtime_are_its_own() -> None:
    with pytest.raises(UserError, match="PET_NNODES"):
        train_job(TRAIN, WANTS, PodWants("image", "runs", env=(("PET_NNODES", "3"),)))
    environ = dict.fromkeys(RESERVED, "1") | {"PET_NNODES": "2", "PET_MASTER_ADDR": "my-run-node-0-0.my-run"}
    found = nodes_from_kubernetes(environ)
    assert found is not None and found.num_nodes == 2


def test_the_runtime_of_the_docs_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    claim, runtime = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert claim["kind"] == "PersistentVolumeClaim"
    read = models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(runtime)
    assert read is not None and read.to_dict() == runtime


@pytest.mark.parametrize("text", ["data", "/", "/a b", "", "/data/"])
def test_mounts_that_no_pod_takes(text: str) -> None:
    with pytest.raises(UserError, match="absolute folder"):
        check_mount(text)
