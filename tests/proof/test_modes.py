"""What a mode does to a process: each test in a process of its own, since nothing of it is undone."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lockstep.proof.modes import Mode
from lockstep.trace import hooks
from lockstep.trace.events import Step
from lockstep.trace.recorder import Plan, Recorder
from lockstep.trace.sink import read_tensor
from lockstep.trace.trace import read_trace
from tests.proof.apart import apart


def recorded(mode: Mode, folder: Path, train: Any) -> Any:
    """What `train()` returns under the mode; its trace is in the folder."""
    folder.mkdir(exist_ok=True)
    recorder = Recorder(Plan(folder, True), 0)
    hooks.install(recorder, None)
    mode(recorder, None)
    result = train()
    recorder.flush()
    return result


def steps_of(folder: Path) -> list[Step]:
    return list(read_trace(folder).ranks[0].of(Step))


def gradient(folder: Path, step: Step) -> list[float]:
    value = read_tensor(folder, 0, step.grad_tensors["0/0"])
    assert value is not None
    return [float(one) for one in value.reshape(-1)]


def train(steps: int = 2, dtype: torch.dtype | None = None) -> tuple[list[float], str]:
    """Weights after some steps of y = wx, and the type they have."""
    model = nn.Linear(1, 1, bias=False, dtype=dtype)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 1)).mean().backward()
        optimizer.step()
    return [float(model.weight)], str(model.weight.dtype)


def as_it_is(folder: Path) -> Any:
    return recorded(Mode(), folder, train)


def test_without_changes_a_run_is_what_it_would_be(tmp_path: Path) -> None:
    assert apart(as_it_is, tmp_path / "trace", folder=tmp_path) == ([0.0], "torch.float32")


def with_a_factor(folder: Path) -> Any:
    return recorded(Mode(factor=0.25), folder, train)


def test_a_factor_on_every_loss(tmp_path: Path) -> None:
    weights, _ = apart(with_a_factor, tmp_path / "trace", folder=tmp_path)
    assert weights == [0.75]
    assert [gradient(tmp_path / "trace", step) for step in steps_of(tmp_path / "trace")] == [[0.25], [0.25]]


def at_other_rates(folder: Path) -> Any:
    return recorded(Mode(lr=(((0.1,), (0.2,)),)), folder, lambda: train(3))


def test_rates_are_put_in_step_by_step_and_the_recorder_sees_them(tmp_path: Path) -> None:
    weights, _ = apart(at_other_rates, tmp_path / "trace", folder=tmp_path)
    assert [step.lr for step in steps_of(tmp_path / "trace")] == [(0.1,), (0.2,), (0.2,)]  # then the last one stays
    assert weights[0] == torch.tensor(0.5).item()


def from_another_start(folder: Path, start: Path) -> Any:
    return recorded(Mode(start=start), folder, lambda: train(1))


def other_training(folder: Path) -> Any:
    def other() -> None:
        model = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(7.0)
        model(torch.ones(1, 1)).mean().backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()

    return recorded(Mode(), folder, other)


def test_the_weights_of_another_start_are_put_in(tmp_path: Path) -> None:
    apart(other_training, tmp_path / "other", folder=tmp_path)
    weights, _ = apart(from_another_start, tmp_path / "trace", tmp_path / "other", folder=tmp_path)
    assert weights == [6.5]


def in_float64(folder: Path) -> Any:
    def body() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9))
            result = model(torch.ones(4, 2))
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return str(result.dtype), bool((result == 0).any()), float(scaler.scale(torch.ones(())))

    return recorded(Mode(fixed=True, high=True), folder, body)


def test_in_high_precision_neither_autocast_nor_dropout_nor_a_scaler_acts(tmp_path: Path) -> None:
    assert apart(in_float64, tmp_path / "trace", folder=tmp_path) == ("torch.float64", False, 1.0)


def without_dropout(folder: Path) -> Any:
    def body() -> Any:
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9))
        inputs = torch.ones(4, 2)
        return bool((model(inputs) == 0).any()), torch.equal(F.dropout(inputs, 0.9), inputs), str(inputs.dtype)

    return recorded(Mode(no_dropout=True), folder, body)


def test_without_dropout(tmp_path: Path) -> None:
    assert apart(without_dropout, tmp_path / "trace", folder=tmp_path) == (False, True, "torch.float32")


def random_numbers(folder: Path, fixed: bool) -> Any:
    def body() -> list[float]:
        found = [float(torch.rand(()))]
        train(1)
        return [*found, float(torch.rand(()))]

    return recorded(Mode(fixed=fixed), folder, body)


def test_fixed_randomness_is_the_same_in_every_run(tmp_path: Path) -> None:
    runs = [apart(random_numbers, tmp_path / str(number), True, folder=tmp_path) for number in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    free = [apart(random_numbers, tmp_path / f"free {number}", False, folder=tmp_path) for number in range(2)]
    assert free[0][0] != free[1][0]


def not_compiled(folder: Path) -> Any:
    def body() -> Any:
        model = nn.Linear(1, 1)

        @torch.compile(mode="default")
        def double(value: int) -> int:
            return 2 * value

        return torch.compile(model) is model, double(2)

    return recorded(Mode(fixed=True), folder, body)


def test_nothing_is_compiled_where_it_is_compared(tmp_path: Path) -> None:
    assert apart(not_compiled, tmp_path / "trace", folder=tmp_path) == (True, 4)


def norms(folder: Path, which: str) -> Any:
    def body() -> Any:
        layer, synced = nn.BatchNorm1d(1), nn.SyncBatchNorm(1)
        rows = torch.tensor([[1.0], [3.0]])
        return layer(rows).flatten().tolist(), synced(rows).flatten().tolist()

    return recorded(Mode(norms=which), folder, body)


def test_every_form_of_batch_norm_runs_on_one_cpu(tmp_path: Path) -> None:
    for which in ("own", "local", "synced"):
        plain, synced = apart(norms, tmp_path / which, which, folder=tmp_path)
        assert plain == synced
        assert abs(plain[1] - 1.0) < 1e-4
