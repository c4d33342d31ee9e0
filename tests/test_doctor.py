"""`lockstep doctor` as it is typed: exit codes, what is said, JSON, two machines, and that --clean is alone."""

import json
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.outcome import Exit
from tests.commands import Command, lockstep
from tests.launch.nodes.two_hosts import two_hosts, why_not


def test_two_ranks_of_this_machine(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "here", "doctor", "--nproc", "2", "--json", "seen.json")
    seen = json.loads((tmp_path / "here/seen.json").read_text())
    assert done.code == (Exit.FAILED if seen["status"] == "fail" else Exit.DONE), done.output
    for group in ("versions", "CPU", "memory", "network", "disk", "leftovers", "all-reduce"):
        assert f"\n{group}\n" in f"\n{done.stdout}"
    assert "4 KiB" in done.stdout
    assert seen["all_reduce"]["num_ranks"] == 2
    assert all(row["right"] and row["busbw"] > 0 for row in seen["all_reduce"]["sizes"])
    assert done.stdout.splitlines()[-1].endswith(" fail")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["seen.json"]


def test_json_instead_of_the_text(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "here", "doctor", "--nproc", "1", "--json", "-")
    seen = json.loads(done.stdout)
    assert seen["all_reduce"] is None
    assert seen["together"][0]["seen"] == "one rank: there is nothing to reduce"


def no_temporary_folder() -> None:
    tempfile.tempdir = "/nowhere"


def test_without_a_temporary_folder_nothing_is_measured_and_it_is_said(tmp_path: Path) -> None:
    done = Command(tmp_path / "here", "doctor", "--nproc", "2", before=no_temporary_folder).wait()
    assert done.code == Exit.FAILED
    assert "/nowhere cannot be written: No such file or directory" in done.stdout
    assert done.stderr == ""


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    run = Command(tmp_path / "here", "doctor", "--nproc", "2")
    run.until(lambda: "leftovers" in run.said()[0])
    os.kill(run.pid, signal.SIGINT)
    assert run.wait().code == Exit.INTERRUPTED


def test_what_fails_is_said_with_what_to_do_and_ends_with_1(tmp_path: Path) -> None:
    env = {"NCCL_SOCKET_IFNAME": "ens99", "OMP_NUM_THREADS": "none"}
    done = lockstep(tmp_path / "here", "doctor", "--nproc", "1", env=env)
    assert done.code == Exit.FAILED
    assert "this host has no ens99; it has " in done.stdout
    assert "Next: name one of them, or unset it" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("2 fail")


def test_ranks_that_cannot_meet_are_a_finding(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "here", "doctor", "--nproc", "2", env={"GLOO_SOCKET_IFNAME": "ens99"})
    assert done.code == Exit.FAILED
    assert "\nall-reduce\n  fail  ranks" in done.stdout
    assert "Traceback" not in done.stderr


MISTAKES = [
    ("ranks in words", ["--nproc", "two"], "--nproc two"),
    ("a node without the others", ["--node-rank", "1"], "--nnodes"),
    ("a node without its number", ["--nnodes", "2"], "--node-rank"),
    ("clean and more", ["--clean", "--nproc", "2"], "--clean alone"),
    ("clean and json", ["--clean", "--json", "-"], "--clean alone"),
    ("json below nothing", ["--json", "nowhere/seen.json"], "cannot be written"),
]


@pytest.mark.parametrize(("argv", "must"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistakes(tmp_path: Path, argv: list[str], must: str) -> None:
    done = lockstep(tmp_path / "here", "doctor", *argv)
    assert done.code == Exit.MISUSE, done.output
    assert must in done.stderr
    assert done.stdout == ""


def nothing_left() -> None:
    """The machine of a test may have leftovers of its owner's, which are none of its business."""
    from lockstep.launch import leftovers
    from lockstep.launch.earlier import shm, strays

    replaced: list[tuple[Any, str]] = [(strays, "find"), (shm, "leaked"), (leftovers, "abandoned")]
    for module, name in replaced:
        setattr(module, name, list)
    leftovers.sweep = lambda: None


def test_clean_without_leftovers(tmp_path: Path) -> None:
    done = Command(tmp_path / "here", "doctor", "--clean", before=nothing_left).wait()
    assert (done.code, done.stdout) == (Exit.DONE, "nothing is left of earlier runs\n")


def test_two_launchers_are_two_nodes(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{probe.getsockname()[1]}"
    common = ("doctor", "--nproc", "1", "--nnodes", "2", "--master", master, "--json", "seen.json", "--node-rank")
    other = Command(tmp_path / "one", *common, "1")
    done = Command(tmp_path / "zero", *common, "0").wait()
    assert other.wait().code == done.code == Exit.DONE, done.output
    seen = json.loads((tmp_path / "zero/seen.json").read_text())
    assert [node["node"] for node in seen["nodes"]] == [0, 1]
    together = {check["name"]: check["status"] for check in seen["together"]}
    assert together.items() >= {"versions": "ok", "clock of node 1": "ok", "speed": "ok"}.items()
    assert "measured; node 0 shows it" in (tmp_path / "one.stdout").read_text()


@pytest.mark.slow
def test_two_hosts_with_a_slow_cable(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as hosts:
        hosts.limit(50)
        hosts.run(1, "tc", "qdisc", "del", "dev", hosts.interfaces[1], "root")  # one direction only
        common = ("doctor", "--nproc", "1", "--nnodes", "2", "--master", hosts.addresses[0], "--json", "seen.json")
        other = Command(tmp_path / "one", *common, "--node-rank", "1", before=hosts.entering(1))
        done = Command(tmp_path / "zero", *common, "--node-rank", "0", before=hosts.entering(0)).wait()
        other.wait()
    seen = json.loads((tmp_path / "zero/seen.json").read_text())
    assert seen["all_reduce"] is not None, done.output
    best = max(row["busbw"] for row in seen["all_reduce"]["sizes"])
    assert 0.4 * 50e6 / 8 < best < 1.5 * 50e6 / 8, done.output  # a small message fits into the cable's burst
    assert len(seen["all_reduce"]["sizes"]) < 8, "the largest would take half a minute"
    links = {(pair["sender"], pair["receiver"]): pair["bytes_per_s"] for pair in seen["all_reduce"]["pairs"]}
    assert links[0, 1] < 0.5 * links[1, 0]
    assert "slow: node 0 to node 1" in " ".join(done.stdout.split())
    assert f"through {hosts.interfaces[0]}" in done.stdout


def test_a_node_that_never_comes_is_a_finding(tmp_path: Path) -> None:
    argv = ("doctor", "--nproc", "1", "--nnodes", "2", "--node-rank", "1", "--master", "127.0.0.1:1")
    run = Command(tmp_path / "here", *argv)
    run.until(lambda: "leftovers" in run.said()[0])
    run.process.terminate()
    done = run.wait()
    assert done.code != Exit.DONE
    assert "Traceback" not in done.stderr
