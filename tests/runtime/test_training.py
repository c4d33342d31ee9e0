"""A run's folder holds all of it; its config changes only when the run has begun to follow it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lockstep.runtime.training as module
from lockstep.core.errors import RunError, UserError
from lockstep.runtime.config import load_config
from lockstep.runtime.state.tensors import tensors_digest
from lockstep.runtime.training import check_best, fit, prepare_folder
from lockstep.runtime.world import World
from tests.bad_recipes import Small
from tests.ranks import run_ranks

QUICK = ["recipe=points", "batch.global_batch=10", "log.tensorboard=off", "precision=fp32", "stop.epochs=1"]


def config_of(*overrides: str) -> Any:
    return load_config(None, [*QUICK, *overrides])


def test_a_new_folder_is_made_with_its_config(tmp_path: Path) -> None:
    folder, config = tmp_path / "a" / "run", config_of("seed=3")
    prepare_folder(folder, config, resume=False)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.yaml", "logs"]
    assert load_config(folder / "config.yaml", []) == config
    prepare_folder(folder, config_of("seed=4"), resume=False)
    assert load_config(folder / "config.yaml", []).seed == 4


def test_a_resumed_folder_keeps_its_config(tmp_path: Path) -> None:
    prepare_folder(tmp_path, config_of("seed=3"), resume=False)
    prepare_folder(tmp_path, config_of("seed=4"), resume=True)
    assert load_config(tmp_path / "config.yaml", []).seed == 3


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_cannot_be_written_is_the_users_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written: Not a directory") as caught:
        prepare_folder(tmp_path / "file" / "run", config_of(), resume)
    assert f"Where: {tmp_path}/file/run" in str(caught.value)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "TemporaryFile", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        prepare_folder(tmp_path / "run", config_of(), resume)


def session(metric: str | None, val: bool = True) -> Any:
    return SimpleNamespace(
        config=config_of(f"best.metric={metric or 'null'}"),
        recipe=Small(),
        val=object() if val else None,
        world=SimpleNamespace(is_main=True),
    )


@pytest.mark.parametrize("metric", [None, "val/loss", "val/accuracy", "val/accuracy/2", "val/loss/cross_entropy"])
def test_a_metric_that_may_be_measured_is_taken(metric: str | None) -> None:
    check_best(session(metric))


@pytest.mark.parametrize("metric", ["accuracy", "val/acuracy", "val/accuracyy", "val", "loss"])
def test_a_metric_that_cannot_be_measured_is_refused_at_the_start(metric: str) -> None:
    with pytest.raises(UserError, match=f"best.metric={metric} is not measured") as caught:
        check_best(session(metric))
    assert "one of val/loss, val/accuracy" in str(caught.value)


def test_without_validation_a_warning_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    check_best(session("val/accuracy", val=False))
    assert "there is no validation set: best.metric=val/accuracy is never measured" in caplog.text


def fitted(folder: Path) -> dict[str, Any]:
    """Several calls in one world, and what each left."""
    found: dict[str, Any] = {}
    with World.enter(threads=1) as world:
        steps: list[int] = []
        config = config_of("run.deterministic=true", "log.every_steps=2")
        summary = fit(Small(), config, world, folder / "run", launch="here", on_step=steps.append)
        found |= {"summary": summary, "steps": steps, "deterministic": torch.are_deterministic_algorithms_enabled()}
        world.barrier()
        before = (folder / "run" / "config.yaml").read_text()
        with pytest.raises(UserError, match="another architecture"):
            fit(Small(hidden=4), config_of("seed=9"), world, folder / "run", resume=True)
        found["kept"] = (folder / "run" / "config.yaml").read_text() == before
        again = fit(Small(), config_of("stop.epochs=2", "optim.lr=0.5"), world, folder / "run", resume=True)
        found |= {"again": again.step, "config": load_config(folder / "run" / "config.yaml", [])}
        world.barrier()
        if world.is_main:
            module.write_text, kept = full_at_the_end(module.write_text), module.write_text
        try:
            fit(Small(), config, world, folder / "full")
        except RunError as error:
            found["full"] = str(error)
        if world.is_main:
            module.write_text = kept
    return found


def full_at_the_end(write: Any) -> Any:
    def once(path: Path, text: str) -> None:
        if '"ended"' in text:
            raise OSError(28, "No space left on device")
        write(path, text)

    return once


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("fitted")
    return folder, run_ranks(fitted, 2, folder)


def test_every_rank_has_the_summary(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (main, other) = ran
    assert main["summary"] == other["summary"]
    assert (main["summary"].step, main["summary"].epoch, main["summary"].run_dir) == (6, 1, folder / "run")
    assert set(main["summary"].results) == {"val/loss", "val/accuracy"}
    assert main["steps"] == other["steps"] == [1, 2, 3, 4, 5, 6]


def test_the_manifest_tells_beginning_and_end(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (main, _) = ran
    found = json.loads((folder / "run" / "manifest.json").read_text())
    assert found["contract"].startswith("global batch 10 = 5 per rank x 2 ranks x 1 micro-step, lr 0.5")
    assert (found["launch"], found["parameters"], found["resumed_at"]) == ("library", 51, 6)
    assert found["started"] <= found["ended"]
    assert found["recipe"]["file"].endswith("bad_recipes.py")
    assert (found["end"]["step"], found["end"]["epoch"], found["end"]["skipped"]) == (12, 2, 0)
    from lockstep.runtime.state.checkpoint import newest_whole, read

    path, _refused = newest_whole(folder / "run" / "checkpoints")
    assert path is not None and found["weights_digest"] == tensors_digest(read(path).tensors)
    assert main["again"] == 12


def test_the_metrics_go_on_over_a_resume(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    records = [json.loads(line) for line in (ran[0] / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [2, 4, 6, 6, 10, 12, 12]
    names = {"loss", "lr", "grad_norm", "scale", "skipped", "samples_per_s", "data_share", "comm_share", "memory_mib"}
    assert names < records[0].keys()
    assert len(records[0]["memory_mib"]) == 2


def test_a_config_that_does_not_fit_the_checkpoint_is_not_kept(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    _, (main, other) = ran
    assert main["kept"] and other["kept"]
    assert (main["config"].optim.lr, main["config"].stop.epochs, main["config"].seed) == (0.5, 2, 0)


def test_determinism_is_for_the_run_alone(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    assert not any(rank["deterministic"] for rank in ran[1])


def test_a_manifest_that_cannot_be_written_is_explained(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (main, other) = ran
    assert main["full"].startswith("manifest.json cannot be written: No space left on device")
    assert "full" not in other
    assert (folder / "full" / "checkpoints" / "step-00000006").is_dir()
