"""Two finished runs side by side: real ones, recorded or trained, and folders written by hand."""

import json
from pathlib import Path

import pytest

from lockstep.core.errors import UserError
from lockstep.core.outcome import Exit
from lockstep.core.proof import Proof, Rung, Status
from lockstep.proof.compare_runs import compare_runs
from tests.commands import lockstep
from tests.programs.catalog import ROOT


def record(folder: Path, name: str, num_ranks: int) -> Path:
    target = folder / f"{Path(name).stem}-{num_ranks}"
    done = lockstep(folder / "home", "run", "--record", str(target), "--nproc", str(num_ranks), str(ROOT / name))
    assert done.code == 0, done.output
    return target


def rung(proof: Proof, name: str) -> Rung:
    return next(one for one in proof.rungs if one.name == name)


def trained(folder: Path, losses: list[float], rate: float = 0.1, every: int = 1, **about: object) -> Path:
    """The folder of a run of `lockstep train`."""
    folder.mkdir()
    steps = len(losses) * every
    lines = [{"step": (index + 1) * every, "loss": loss, "lr": rate, "epoch": 0} for index, loss in enumerate(losses)]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"step": steps, "val/loss": 1.0, "epoch": 1}])
    (folder / "metrics.jsonl").write_text(text + '{"step": 99, "lo', encoding="utf-8")
    manifest = {"num_ranks": 2, "global_batch": 16, "precision": "fp32", "ended": "now", "end": {"step": steps}}
    (folder / "manifest.json").write_text(json.dumps({**manifest, **about}), encoding="utf-8")
    return folder


def test_a_right_program_on_one_rank_and_on_two(tmp_path: Path) -> None:
    one, two = record(tmp_path, "right/plain.py", 1), record(tmp_path, "right/plain.py", 2)
    proof = compare_runs(one, two)
    assert proof.exit is Exit.DONE, proof.rungs
    assert [one.name for one in proof.rungs] == [
        "runs",
        "rules over plain-2",
        "global batch",
        "learning rate",
        "partition",
        "loss",
    ]
    assert rung(proof, "partition").said.startswith("2 whole passes: the same 48 samples")
    assert "12 points to step 12" in rung(proof, "loss").said
    assert [len(curve.values) for curve in proof.curves] == [12, 12]
    assert proof.num_ranks == 2 and len(proof.digests) == 3


def test_a_wrong_one_parts_where_its_first_wrong_step_shows(tmp_path: Path) -> None:
    name = "wrong/missing_all_reduce.py"
    proof = compare_runs(record(tmp_path, name, 1), record(tmp_path, name, 2))
    assert proof.exit is Exit.FAILED
    assert rung(proof, "rules over missing_all_reduce-2").findings[0].code == "LS102"
    loss = rung(proof, "loss")
    assert (loss.status, loss.differences[0].step) == (Status.FAIL, 1)


def test_folders_of_train(tmp_path: Path) -> None:
    losses = [2.0 * 0.9**step for step in range(12)]
    one = trained(tmp_path / "one", losses, num_ranks=1)
    same = trained(tmp_path / "same", [loss * (1 + 1e-6) for loss in losses])
    proof = compare_runs(one, same)
    assert proof.exit is Exit.DONE, proof.rungs
    assert [one.name for one in proof.rungs] == ["runs", "global batch", "learning rate", "loss"]


def test_rate_and_batch_are_deviations_that_can_be_declared(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", [1.0, 0.9, 0.8])
    other = trained(tmp_path / "other", [1.0, 0.9, 0.8], rate=0.2, global_batch=32)
    proof = compare_runs(one, other)
    assert {rung.name for rung in proof.rungs if rung.status is Status.FAIL} == {"global batch", "learning rate"}
    assert [rung(proof, name).causes[0].code for name in ("global batch", "learning rate")] == ["LS408", "LS412"]
    assert compare_runs(one, other, ("LS408", "LS412")).exit is Exit.DONE


def test_another_number_of_steps(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", [1.0, 0.9, 0.8, 0.7])
    assert rung(compare_runs(one, trained(tmp_path / "few", [1.0, 0.9])), "runs").status is Status.FAIL
    cut = trained(tmp_path / "cut", [1.0, 0.9])
    manifest = json.loads((cut / "manifest.json").read_text())
    (cut / "manifest.json").write_text(
        json.dumps({key: manifest[key] for key in manifest if key not in ("ended", "end")})
    )
    proof = compare_runs(one, cut)
    assert rung(proof, "runs").status is Status.PASS
    assert "their common steps are compared" in rung(proof, "runs").said


def test_a_folder_with_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        compare_runs(tmp_path, tmp_path)
    broken = trained(tmp_path / "broken", [1.0])
    (broken / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"manifest\.json cannot be read"):
        compare_runs(broken, broken)
