"""The whole of a training on two hosts, each with a folder of its own."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.commands import Command, Done, lockstep
from tests.launch.nodes.two_hosts import TwoHosts

POINTS = ["recipe=points", "options.samples=60", "options.val_samples=20", "options.hidden=8", "run.dir=run"]
POINTS += ["batch.global_batch=10", "log.tensorboard=off", "log.every_steps=1", "run.threads=1", "precision=fp32"]
LONG = "stop.epochs=60"  # 360 steps, some seconds
ENDLESS = "stop.epochs=5000"


class Host:
    """One host's launcher."""

    def __init__(self, tmp_path: Path, hosts: TwoHosts, node: int, *more: str, nproc: int = 1) -> None:
        self.folder = tmp_path / f"host{node}"
        self.run = self.folder / "run"
        where = ("--nproc", str(nproc), "--nnodes", "2", "--node-rank", str(node), "--master", hosts.addresses[0])
        self.command = Command(self.folder, "train", *POINTS, *where, *more, before=hosts.entering(node))

    def steps(self) -> int:
        """How many steps the run has logged."""
        log = self.run / "metrics.jsonl"
        return log.read_text().count('"loss"') if log.exists() else 0

    def until_step(self, step: int) -> None:
        self.command.until(lambda: self.steps() >= step)

    def wait(self, timeout_s: float = 120) -> Done:
        return self.command.wait(timeout_s)


@pytest.fixture
def start(tmp_path: Path, hosts: TwoHosts) -> Iterator[Callable[..., Host]]:
    """Start `start(node, *words, nproc=1)`; what still runs is killed at the end."""
    started: list[Host] = []

    def begin(node: int, *more: str, nproc: int = 1) -> Host:
        started.append(Host(tmp_path, hosts, node, *more, nproc=nproc))
        return started[-1]

    yield begin
    for host in started:
        end(host)


def end(host: Host) -> None:
    """Kill a launcher that still runs."""
    try:
        host.command.process.kill()
        host.command.process.join()
        host.command.process.close()
    except ValueError:  # it has been waited for
        pass


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run's folder of the same training on one host: `one_host(*words, ranks=2)`. Each is run once."""
    known: dict[tuple[object, ...], Path] = {}

    def run(*more: str, ranks: int = 2) -> Path:
        if (ranks, *more) not in known:
            folder = tmp_path_factory.mktemp("one") / "host"
            done = lockstep(folder, "train", *POINTS, "--nproc", str(ranks), *more)
            assert done.code == 0, done.output
            known[(ranks, *more)] = folder / "run"
        return known[(ranks, *more)]

    return run


def same_training(one: Path, other: Path) -> None:
    """Weights and every loss, bit for bit."""
    last = max((one / "checkpoints").glob("step-*")).name
    weights = [load_file(run / "checkpoints" / last / "model.safetensors") for run in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert losses(one) == losses(other)


def losses(run: Path) -> list[tuple[object, ...]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line.get("loss"), line.get("val/loss")) for line in lines]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["node 0 first", "node 1 first"])
@pytest.mark.slow
def test_two_hosts_train_as_one(
    start: Callable[..., Host], one_host: Callable[..., Path], order: tuple[int, int]
) -> None:
    early = start(order[0])
    time.sleep(3)
    late = start(order[1])
    done = {order[0]: early.wait(), order[1]: late.wait()}
    assert [done[0].code, done[1].code] == [0, 0], done
    zero = early if order[0] == 0 else late
    same_training(one_host(), zero.run)
    assert "epoch 5" in done[0].stdout and done[1].stdout == "", "rank 0 speaks"
    assert done[0].stderr == done[1].stderr == ""


@pytest.mark.slow
def test_hosts_with_unequal_numbers_of_ranks(start: Callable[..., Host], one_host: Callable[..., Path]) -> None:
    zero, one = start(0, nproc=2), start(1, nproc=1)
    assert [zero.wait().code, one.wait().code] == [0, 0]
    same_training(one_host(ranks=3), zero.run)


def test_a_node_that_never_comes_is_named(start: Callable[..., Host], hosts: TwoHosts) -> None:
    started = time.monotonic()
    done = start(0, "--node-wait", "2").wait(20)
    assert done.code == 1 and "node 1 of 2 did not come within 2 s" in done.stderr
    assert f"{hosts.interfaces[0]} {hosts.addresses[0]}" in done.stderr and "Traceback" not in done.stderr
    done = start(1, "--node-wait", "2").wait(20)
    assert done.code == 1 and f"node 0 was not reached at {hosts.addresses[0]}:" in done.stderr
    assert time.monotonic() - started < 20


def test_another_config_on_one_host_is_refused_on_both(start: Callable[..., Host]) -> None:
    zero, one = start(0), start(1, "optim.lr=0.5")
    for host in (zero, one):
        done = host.wait(30)
        assert done.code == 2 and "optim.lr is '0.5' on node 1 and '0.02' on node 0" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_rank_that_is_killed_on_one_host_is_named_on_both(start: Callable[..., Host]) -> None:
    zero, one = start(0, ENDLESS), start(1, ENDLESS)
    zero.until_step(20)
    os.kill(rank_of(one).pid, signal.SIGKILL)
    killed = time.monotonic()
    for host in (zero, one):
        done = host.wait(30)
        assert done.code == 1 and "Rank 1 was killed by SIGKILL" in done.stderr, done.stderr
    assert time.monotonic() - killed < 10


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_launcher_that_is_killed_ends_the_other_host(start: Callable[..., Host], node: int) -> None:
    both = [start(0, ENDLESS), start(1, ENDLESS)]
    both[0].until_step(20)
    rank = rank_of(both[node])
    both[node].command.process.kill()
    killed = time.monotonic()
    done = both[1 - node].wait(30)
    assert done.code == 1 and f"ode {node} is gone" in done.stderr, done.stderr
    assert time.monotonic() - killed < 15
    both[node].wait()
    assert not rank.is_running()


@pytest.mark.slow
def test_ctrl_c_on_one_host_ends_both(start: Callable[..., Host]) -> None:
    zero, one = start(0, ENDLESS), start(1, ENDLESS)
    zero.until_step(20)
    os.kill(zero.command.pid, signal.SIGINT)
    done = [zero.wait(30), one.wait(30)]
    assert [each.code for each in done] == [130, 130], done
    assert "Interrupted" in done[0].stderr and "On another machine: Interrupted" in done[1].stderr


@pytest.mark.slow
def test_a_cable_that_is_pulled_and_put_in_again(
    start: Callable[..., Host], hosts: TwoHosts, one_host: Callable[..., Path]
) -> None:
    zero, one = start(0, LONG), start(1, LONG)
    zero.until_step(30)
    hosts.cut()
    time.sleep(1)
    before = zero.steps()
    time.sleep(5)
    assert zero.steps() == before < 360, "the training waits"
    hosts.mend()
    assert [zero.wait().code, one.wait().code] == [0, 0]
    same_training(one_host(LONG), zero.run)


@pytest.mark.slow
def test_a_cable_that_is_pulled_for_good(start: Callable[..., Host], hosts: TwoHosts) -> None:
    both = [start(node, ENDLESS, "--stall-timeout", "20") for node in (0, 1)]
    both[0].until_step(30)
    hosts.cut()
    cut = time.monotonic()
    for node, host in enumerate(both):
        done = host.wait(90)
        assert done.code == 1 and f"Node {1 - node} has not been heard" in done.stderr, done.stderr
        assert "link" in done.stderr
    assert time.monotonic() - cut < 60


@pytest.mark.slow
def test_a_slow_and_lossy_line(tmp_path: Path, slow_hosts: TwoHosts, one_host: Callable[..., Path]) -> None:
    both = [Host(tmp_path, slow_hosts, node) for node in (0, 1)]
    try:
        done = [host.wait(200) for host in both]
    finally:
        for host in both:
            end(host)
    assert [each.code for each in done] == [0, 0], done
    same_training(one_host(), both[0].run)


@pytest.mark.slow
def test_a_restart_goes_on_from_a_folder_that_both_see(
    start: Callable[..., Host], one_host: Callable[..., Path], tmp_path: Path
) -> None:
    more = (LONG, f"run.dir={tmp_path / 'shared'}", "--restarts", "1")
    zero, one = start(0, *more), start(1, *more)
    zero.run = tmp_path / "shared"
    zero.until_step(30)
    os.kill(rank_of(one).pid, signal.SIGKILL)
    for done in (zero.wait(), one.wait()):
        assert done.code == 0 and "Rank 1 was killed by SIGKILL" in done.stderr and "Restart 1 of 1" in done.stderr, (
            done
        )
    same_training(one_host(LONG), zero.run)


@pytest.mark.slow
def test_a_restart_without_such_a_folder_says_what_is_missing(start: Callable[..., Host]) -> None:
    zero, one = start(0, LONG, "--restarts", "1"), start(1, LONG, "--restarts", "1")
    zero.until_step(30)
    os.kill(rank_of(one).pid, signal.SIGKILL)
    for done in (zero.wait(), one.wait()):
        assert done.code == 1 and "a disk that all share" in done.stderr, done


@pytest.mark.slow
def test_one_open_port_is_not_enough_and_that_is_said(start: Callable[..., Host], hosts: TwoHosts) -> None:
    if shutil.which("nft") is None:
        pytest.skip("nft is not installed (package nftables): no firewall to try it with")
    rules = "add table inet f; add chain inet f i { type filter hook input priority 0; }; add rule inet f i"
    rules += " tcp flags & (syn|ack) == syn tcp dport != 29415 iifname != lo drop"
    hosts.run(0, "nft", rules)
    zero, one = start(0), start(1)
    done = [zero.wait(), one.wait()]
    assert [each.code for each in done] == [1, 1], done
    assert "node 1 has left before the ranks were started" in done[0].stderr
    assert "node 0 is reached, but not its port" in done[1].stderr and "all TCP ports" in done[1].stderr


@pytest.mark.slow
def test_ipv6_alone_is_enough(tmp_path: Path, hosts: TwoHosts) -> None:
    for host, interface in enumerate(hosts.interfaces):
        hosts.run(host, "ip", "address", "del", f"{hosts.addresses[host]}/24", "dev", interface)
        hosts.run(host, "ip", "address", "add", f"fd00:77::{host + 1}/64", "dev", interface, "nodad")
    both = [Host(tmp_path, replace(hosts, addresses=("[fd00:77::1]", "")), node) for node in (0, 1)]
    try:
        done = [host.wait() for host in both]
    finally:
        for host in both:
            end(host)
    assert [each.code for each in done] == [0, 0], done


SCRIPT = """
import os, sys
import torch
import torch.distributed as dist

def share(step):
    if step == 3 and dist.get_rank() == int(sys.argv[1]):
        raise RuntimeError("the disk of this machine is full")
    return torch.full((4,), float(dist.get_rank()))

dist.init_process_group("gloo")
for step in range(6):
    mine = share(step)
    dist.all_reduce(mine)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")
print("sum", mine[0].item(), *(os.environ[name] for name in names))
dist.destroy_process_group()
"""


def run_script(tmp_path: Path, hosts: TwoHosts, node: int, failing: int) -> Command:
    folder = tmp_path / f"host{node}"
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    where = ("--nproc", "2", "--nnodes", "2", "--node-rank", str(node), "--master", hosts.addresses[0])
    return Command(folder, "run", *where, "--all-ranks", "script.py", str(failing), before=hosts.entering(node))


@pytest.mark.slow
def test_a_strangers_script_on_two_hosts_of_two_ranks(tmp_path: Path, hosts: TwoHosts) -> None:
    both = [run_script(tmp_path, hosts, node, failing=-1) for node in (1, 0)]
    for node, command in zip((1, 0), both, strict=True):
        done = command.wait()
        assert done.code == 0, done
        for rank_of_node in (0, 1):
            rank = 2 * node + rank_of_node
            said = f"sum 6.0 {rank} 4 {rank_of_node} 2 {node} {hosts.addresses[0]} {hosts.interfaces[node]}"
            assert said in done.stdout, done


@pytest.mark.slow
def test_a_strangers_script_that_fails_on_the_other_host_is_named_with_its_line(
    tmp_path: Path, hosts: TwoHosts
) -> None:
    both = [run_script(tmp_path, hosts, node, failing=3) for node in (0, 1)]
    for done in [command.wait() for command in both]:
        assert done.code == 1, done
        assert "Rank 3 failed first: RuntimeError: the disk of this machine is full" in done.stderr
        assert "script.py:8 in share" in done.stderr


def rank_of(host: Host) -> psutil.Process:
    """The only rank of a launcher."""
    return next(one for one in psutil.Process(host.command.pid).children() if os.getpgid(one.pid) == one.pid)
