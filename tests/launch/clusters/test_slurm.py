import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lockstep.core.errors import UserError
from lockstep.launch.clusters.slurm import PORTS, hosts, node_address, nodes_from_slurm, ranks_from_slurm, unused_nodes
from lockstep.launch.nodes import Nodes
from tests.launch.clusters.slurm_here import CannotStartError, Slurm, reason_against, slurm, strays

# What srun sets for the second task of a step of two nodes, in a job of four.
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NODELIST": "gpu[01-04]",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "gpu[02-03]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "1",
    "SLURM_GPUS_ON_NODE": "8",
}


def nodes(**changes: str | None) -> Nodes | None:
    changed = {name: value for name, value in {**STEP, **changes}.items() if value is not None}
    return nodes_from_slurm(changed, address=str)


def test_slurm_a_smaller_step_counts_not_the_job() -> None:
    assert nodes() == Nodes(num_nodes=2, node=1, host="gpu02", port=20000 + (16 * 4711 + 3) % 10000)


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_NODELIST": None, "SLURM_STEP_NUM_NODES": None, "SLURM_STEP_NUM_TASKS": None},  # the batch script
        {"SLURM_STEP_NODELIST": "gpu02", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "8"},  # the shell that salloc opens
    ],
)
def test_slurm_nobody_to_meet(changes: dict[str, str | None]) -> None:
    assert nodes(**changes) is None


def test_slurm_outside_of_it() -> None:
    assert nodes_from_slurm({}) is None
    assert ranks_from_slurm({"SLURM_GPUS_ON_NODE": "4"}) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SLURM_STEP_NUM_TASKS": "16"}, "16 tasks on 2 nodes"),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"}, "4 tasks on 1 node."),
        ({"SLURM_STEP_NUM_TASKS": None}, "SLURM_STEP_NUM_TASKS is not set"),
        ({"SLURM_NODEID": "x"}, "SLURM_NODEID='x'"),
        ({"SLURM_NODEID": "2"}, "node 2 of 2"),
        ({"SLURM_STEP_NODELIST": "gpu[02-04]"}, "gpu[02-04]"),
        ({"SLURM_STEP_NODELIST": "gpu[02-"}, "no list of nodes"),
        ({"SLURM_STEP_NODELIST": "gpu[a-b]"}, "no range"),
        ({"SLURM_JOB_ID": None}, "SLURM_JOB_ID is not set"),
    ],
)
def test_slurm_variables_that_cannot_be(changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(UserError) as caught:
        nodes(**changes)
    assert said in str(caught.value)
    assert "srun" in str(caught.value) or "a[01-03,7],b" in str(caught.value) or "[01-03,7]" in str(caught.value)


def test_slurm_too_many_tasks_says_how_to_start() -> None:
    with pytest.raises(UserError, match="srun --ntasks-per-node=1"):
        nodes(SLURM_STEP_NUM_TASKS="16")


def test_slurm_ports_of_steps_and_jobs_differ_and_are_the_same_on_all_nodes() -> None:
    ports = {}
    for job in range(100, 140):
        for step in range(16):
            here = [nodes(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step), SLURM_NODEID=str(node)) for node in (0, 1)]
            assert here[0] is not None and here[1] is not None and here[0].port == here[1].port
            ports[job, step] = here[0].port
    assert len(set(ports.values())) == len(ports)
    assert all(port in PORTS for port in ports.values())


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ({}, 8),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5ebe9f43,GPU-ac33420d"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
        ({"SLURM_GPUS_ON_NODE": ""}, None),
        ({"SLURM_GPUS_ON_NODE": "0"}, None),
    ],
)
def test_slurm_a_rank_for_each_gpu(changes: dict[str, str], ranks: int | None) -> None:
    assert ranks_from_slurm({**STEP, **changes}) == ranks


def test_slurm_nodes_that_lie_idle() -> None:
    batch = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "4"}
    assert unused_nodes(batch) == 3
    assert unused_nodes({**batch, "SLURM_JOB_NUM_NODES": "1"}) == 0
    assert unused_nodes(STEP) == unused_nodes({}) == 0


LISTS = {
    "n1": ["n1"],
    "a[01-03,7],b": ["a01", "a02", "a03", "a7", "b"],
    "r[1-2]n[08-10]": ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"],
    "x[9-11],y-ib": ["x9", "x10", "x11", "y-ib"],
    "a[098-101]": ["a098", "a099", "a100", "a101"],
}


@pytest.mark.parametrize("text", LISTS)
def test_slurm_lists_of_nodes(text: str) -> None:
    assert hosts(text) == LISTS[text]


def test_slurm_a_name_that_resolves_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert node_address("localhost") == "localhost"
    assert node_address("no-such-host.invalid") == "no-such-host.invalid"


# ---- with a real Slurm of two nodes ----


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    try:
        with slurm() as running:
            yield running
    except CannotStartError as why:
        pytest.skip(f"no Slurm here: {str(why).splitlines()[0]}")


@pytest.mark.slow
@pytest.mark.parametrize("text", LISTS)
def test_slurm_itself_reads_lists_the_same_way(cluster: Slurm, text: str) -> None:
    assert cluster.ask("scontrol", "show", "hostnames", text).split() == hosts(text)


TELL = """
import json, os
from lockstep.launch.clusters.slurm import nodes_from_slurm, ranks_from_slurm
found = nodes_from_slurm(os.environ)
print(json.dumps([found and [found.num_nodes, found.node, found.host, found.port], ranks_from_slurm(os.environ)]))
"""


@pytest.mark.slow
def test_slurm_real_steps_tell_their_nodes(cluster: Slurm) -> None:
    both = cluster.ask("srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", sys.executable, "-c", TELL)
    told = sorted(json.loads(line) for line in both.splitlines())
    port = told[0][0][3]
    # The names n1 and n2 resolve nowhere: Slurm's own address of the node is taken.
    assert told == [[[2, 0, "127.0.0.1", port], 2], [[2, 1, "127.0.0.1", port], 2]]
    assert port in PORTS


@pytest.mark.slow
def test_slurm_real_step_smaller_than_its_job(cluster: Slurm) -> None:
    inner = f"srun -N1 --relative=1 --ntasks=1 {sys.executable} -c '{TELL}'"
    said = cluster.ask("salloc", "-N2", "--ntasks-per-node=1", "bash", "-c", inner)
    assert json.loads(said.splitlines()[-1]) == [None, None]


@pytest.mark.slow
def test_slurm_real_step_with_a_task_for_each_rank_is_refused(cluster: Slurm) -> None:
    command = ["srun", "-N2", "--ntasks-per-node=2", sys.executable, "-c", TELL]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "this Slurm step has 4 tasks on 2 nodes" in done.stderr


@pytest.mark.slow
def test_slurm_of_the_tests_leaves_nothing_behind() -> None:
    if reason := reason_against():
        pytest.skip(f"no Slurm here: {reason}")
    with pytest.raises(ZeroDivisionError), slurm() as running:
        command = ["sbatch", "--parsable", "-N2", "--output=/dev/null", "--wrap", "trap '' TERM; srun sleep 300"]
        job = running.ask(*command).strip()
        running.await_state(job, "RUNNING")
        daemons = [process.name() for process in strays(running.folder)]
        assert {"munged", "slurmctld", "slurmd"} <= set(daemons)
        _ = 1 / 0
    assert strays(running.folder) == []
    assert not running.folder.exists()
