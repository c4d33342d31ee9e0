"""The average of the weights: its formula, its place in evaluation, and in checkpoints of old and new runs."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.config import EmaConfig
from lockstep.runtime.ema import Ema, rate
from lockstep.runtime.parallel.local import local
from lockstep.runtime.state.weights import read_weights
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.regression import NAN, Regression
from tests.runtime.tasks import Segment, config_of


def test_the_decay_grows_to_its_full_value() -> None:
    assert [rate(0.5, n) for n in (0, 1, 8, 9)] == [1 / 10, 2 / 11, 0.5, 0.5]
    assert rate(0.999, 10**6) == 0.999


def test_it_is_the_formula() -> None:
    model = nn.Linear(2, 1).double()
    ema = Ema(model, EmaConfig(decay=0.9, start_step=1))
    wanted: Tensor | None = None
    for step in range(1, 30):
        with torch.no_grad():
            model.weight += torch.randn(1, 2, dtype=torch.float64)
        ema.update(step)
        if step > 1:
            weight = model.weight.detach().clone()
            n = step - 2
            decay = min(0.9, (1 + n) / (10 + n))
            wanted = weight if wanted is None else decay * wanted + (1 - decay) * weight
    assert ema.updates == 28
    assert wanted is not None
    torch.testing.assert_close(ema.tensors()["weight"], wanted, rtol=1e-14, atol=1e-14)


class Mixed(nn.Module):
    """A frozen weight, a tied one, one in bf16, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.frozen = nn.Linear(3, 3, bias=False), nn.Linear(3, 3).requires_grad_(False)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.a.weight
        self.low = nn.Linear(3, 3).to(torch.bfloat16)
        self.register_buffer("seen", torch.arange(3))


def moved(model: nn.Module, ema: Ema, steps: int = 5) -> None:
    for step in range(1, steps + 1):
        with torch.no_grad():
            for param in model.parameters():
                param += torch.randn(param.shape).to(param.dtype) * param.requires_grad
        ema.update(step)


def test_it_is_put_in_place_and_taken_out_bit_by_bit() -> None:
    torch.manual_seed(0)
    model = Mixed()
    ema = Ema(model, EmaConfig(decay=0.7))
    with ema.applied():  # nothing is averaged yet: the weights themselves
        assert torch.equal(ema.tensors()["a.weight"], model.a.weight)
    moved(model, ema)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    average, places = ema.tensors(), [p.data_ptr() for p in model.parameters()]
    with pytest.raises(KeyError), ema.applied():
        assert torch.equal(model.a.weight, average["a.weight"])
        assert not torch.equal(model.a.weight, before["a.weight"])
        assert torch.equal(model.low.weight, average["low.weight"].to(torch.bfloat16))
        assert torch.equal(model.frozen.weight, before["frozen.weight"])
        raise KeyError
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [p.data_ptr() for p in model.parameters()] == places
    assert all(torch.equal(average[name], value) for name, value in ema.tensors().items())
    assert average["low.weight"].dtype == torch.float32
    assert "tied.weight" not in average


def test_it_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    model = Mixed()
    ema = Ema(model, EmaConfig(decay=0.7))
    moved(model, ema)
    save_file(ema.tensors(), tmp_path / "ema.safetensors", {"ties": json.dumps({"tied.weight": "a.weight"})})
    other = Mixed()
    second = Ema(other, EmaConfig(decay=0.7))
    second.load(read_weights(tmp_path / "ema.safetensors"), ema.updates, "ema.safetensors")
    other.load_state_dict(model.state_dict())
    for one, step in ((ema, 6), (second, 6)):
        one.update(step)
    assert all(torch.equal(value, second.tensors()[name]) for name, value in ema.tensors().items())
    with pytest.raises(UserError, match=r"low.weight is \(1,\)"):
        second.load({**ema.tensors(), "low.weight": torch.ones(1)}, 1, "it")
    with pytest.raises(UserError, match=r"it has no a\.weight"):
        second.load({}, 1, "it")


def results(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k.startswith("val/")} for record in records if "val/loss" in record]


RUN = ["batch.global_batch=12", "stop.epochs=2", "precision=fp32", "checkpoint.keep_last=9"]


def test_a_run_evaluates_the_average_and_goes_on_with_the_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"length": 24, "val": 8, "depth": 1}
    caplog.set_level(logging.INFO, "lockstep")
    with World.enter(threads=1) as world:

        def trained(name: str, *overrides: str, resume: bool = False) -> Path:
            fit(Segment(**options), config_of(*RUN, *overrides), world, tmp_path / name, resume)
            return tmp_path / name

        plain, averaged = trained("plain"), trained("averaged", "ema.decay=0.9")
        steps = [folder / "checkpoints" / "step-00000004" for folder in (plain, averaged)]
        weights = [load_file(step / "model.safetensors") for step in steps]
        assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
        assert results(plain) != results(averaged)
        assert not (steps[0] / "ema.safetensors").exists()
        # The average is an ordinary file of weights: a run that begins with it measures the same.
        begun = trained("begun", f"init_from={steps[1]}/ema.safetensors", "optim.lr=1e-30", "optim.weight_decay=0")
        assert results(begun)[0] == results(averaged)[-1]
        # A run that had none takes the weights as they are.
        caplog.clear()
        trained("plain", "ema.decay=0.9", "stop.epochs=3", resume=True)
        assert "has no ema.safetensors: the average begins with the weights of now" in caplog.text
        assert (plain / "checkpoints" / "step-00000006" / "ema.safetensors").exists()


def test_a_step_that_is_left_out_does_not_count(tmp_path: Path) -> None:
    config = config_of("batch.global_batch=6", "stop.epochs=1", "precision=fp32", "ema.decay=0.9")
    with World.enter(threads=1) as world:
        fit(Regression(bad={17: NAN}), config, world, tmp_path)
    saved = tmp_path / "checkpoints" / "step-00000004" / "trainer.pt"
    assert torch.load(saved, weights_only=True)["ema"] == {"updates": 3}


def exchanged() -> tuple[bool, bool, dict[str, Tensor]]:
    from lockstep.runtime.session import build_session

    with World.enter(threads=1) as world:
        shards = ["parallel.strategy=fsdp", "parallel.blocks=[blocks.*]", "ema.decay=0.5", "precision=fp32"]
        session = build_session(Segment(depth=2), config_of(*shards), world, None)
        ema = session.state.ema
        assert ema is not None
        with torch.no_grad():
            for step in range(1, 4):
                for param in session.model.parameters():
                    local(param).add_(step)
                ema.update(step)
        before = [local(p).clone() for p in session.model.parameters()]
        average = ema.tensors()
        with ema.applied():
            inside = [local(p).clone() for p in session.model.parameters()]
        after = [local(p) for p in session.model.parameters()]
        session.replica.close()
        changed = any(not torch.equal(x, y) for x, y in zip(before, inside, strict=True))
        return changed, all(torch.equal(x, y) for x, y in zip(before, after, strict=True)), average


def test_shards_are_averaged_where_they_lie() -> None:
    one, two = (run_ranks(exchanged, n) for n in (1, 2))
    for changed, back, _ in (*one, *two):
        assert changed and back
    for name, value in one[0][2].items():
        assert torch.equal(value, two[0][2][name])
