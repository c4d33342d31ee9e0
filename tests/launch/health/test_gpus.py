from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep.launch.health import gpus
from lockstep.launch.health.check import Asked
from lockstep.launch.health.smi import Gpu
from tests.launch.health import fake_smi

GPU = Gpu(0, "H100", 80_000, 4, "550.54.15", "Default")


def test_a_machine_with_gpus_and_a_torch_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.version.cuda:
        pytest.skip("this torch is built for CUDA")
    fake_smi.install(tmp_path, monkeypatch)
    found = {check.name: check for check in gpus.checks(Asked(2))}
    assert found["driver"].seen == "driver 550.54.15, runs CUDA up to 12.4"
    assert found["GPU 0"].status == "ok"
    assert found["GPU 1"].status == "fail"
    assert found["links"].seen == "1 pair by NVLink (NV18)"
    assert found["torch"].status == "warn"
    assert found["memory of pid 1"].seen.startswith("40000 MiB: ")


def test_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.version.cuda:
        pytest.skip("this torch is built for CUDA")
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = gpus.checks(Asked())
    assert (check.status, check.seen) == ("ok", "no nvidia-smi: ranks run on the CPU")


@pytest.mark.parametrize(
    ("gpu", "status", "must"),
    [
        (GPU, "ok", "4 of 80000 MiB used"),
        (replace(GPU, ecc_errors=2), "fail", "2 uncorrected memory errors"),
        (replace(GPU, compute_mode="Prohibited"), "fail", "Prohibited"),
        (replace(GPU, throttle=0x20), "warn", "slowed down"),
        (replace(GPU, throttle=0x1), "ok", ""),  # idle
        (replace(GPU, throttle=0x4), "ok", ""),  # at its power limit: as it should be
        (replace(GPU, mig=True), "warn", "MIG"),
        (replace(GPU, used_mib=30_000), "warn", "30000 of 80000"),
    ],
)
def test_one_gpu(gpu: Gpu, status: str, must: str) -> None:
    check = gpus.judge(gpu, ranks_per_node=2)
    assert check.status == status
    assert must in check.seen
    assert bool(check.advice) == (status != "ok")


@pytest.mark.parametrize(
    ("newest", "built_for", "status"),
    [("12.4", "12.8", "ok"), ("12.4", "13.0", "fail"), ("13.0", "12.8", "ok"), ("", "13.0", "ok"), ("12.4", "", "ok")],
)
def test_the_driver_against_torch(newest: str, built_for: str, status: str) -> None:
    assert gpus.driver([GPU], newest, built_for).status == status


def test_a_driver_without_gpus() -> None:
    assert gpus.driver([], "12.4", "12.8").status == "fail"


def test_mixed_links_say_which_pairs_are_far_apart() -> None:
    links = {(0, 1): "PIX", (1, 0): "PIX", (0, 2): "SYS", (2, 0): "SYS", (1, 2): "SYS", (2, 1): "SYS"}
    check = gpus.joined(links)
    assert check.seen == "2 pairs by the link between sockets (SYS), 1 pair by one PCIe switch (PIX)"
    assert check.advice.endswith("far apart: 0-2, 1-2")
    assert gpus.joined({}).status == "ok"


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((12, 0), ["sm_80", "sm_90a"], False),
        ((12, 0), ["sm_80", "compute_90"], True),
        ((7, 0), ["sm_80", "compute_80"], False),
        ((10, 0), ["sm_100"], True),
        ((7, 0), [], True),  # it does not say
    ],
)
def test_code_for_a_gpu(capability: tuple[int, int], built: list[str], runs: bool) -> None:
    assert gpus.runs_on(capability, built) == runs
