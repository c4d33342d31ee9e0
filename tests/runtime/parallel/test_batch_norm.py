"""Synchronised BatchNorm on N ranks is torch's BatchNorm on the whole batch: outputs, gradients, running statistics."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.runtime.parallel.batch_norm import SyncBatchNorm, synchronise
from lockstep.runtime.world import World
from tests.ranks import run_ranks

CPU = torch.device("cpu")
LAYERS: dict[int, type[nn.Module]] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


@dataclass(frozen=True)
class Case:
    """A layer, its input and how the samples are shared; `bounds` gives the first samples of each rank by N."""

    dims: int = 4
    momentum: float | None = 0.1
    affine: bool = True
    track: bool = True
    eps: float = 1e-5
    dtype: torch.dtype = torch.float64
    channels_last: bool = False
    without: str = ""  # a parameter of the layer that it has not
    frozen: str = ""
    shares: str = "equal"
    steps: int = 3


CASES = {
    "2d": Case(),
    "1d": Case(dims=2),
    "1d with length": Case(dims=3),
    "3d": Case(dims=5),
    "cumulative average": Case(momentum=None),
    "momentum 1": Case(momentum=1.0),
    "momentum 0": Case(momentum=0.0),
    "not affine": Case(affine=False),
    "no bias": Case(without="bias"),
    "frozen weight": Case(frozen="weight"),
    "no running statistics": Case(track=False),
    "large eps": Case(eps=0.5),
    "unequal shares": Case(shares="unequal"),
    "one sample on a rank": Case(dims=2, shares="one"),
    "nothing on a rank": Case(shares="empty"),
    "nothing on a rank, 1d": Case(dims=2, shares="empty", affine=False),
    "channels last": Case(channels_last=True),
    "float32": Case(dtype=torch.float32),
    "bf16": Case(dtype=torch.bfloat16, shares="unequal"),
    "fp16": Case(dtype=torch.float16),
}
SAMPLES, CHANNELS = 12, 4


def layer_of(case: Case, dtype: torch.dtype) -> Any:
    torch.manual_seed(1)
    norm: Any = LAYERS[case.dims](
        CHANNELS, eps=case.eps, momentum=case.momentum, affine=case.affine, track_running_stats=case.track
    )
    if case.affine:
        nn.init.normal_(norm.weight, 1.0)
        nn.init.normal_(norm.bias)
    if case.without:
        norm.register_parameter(case.without, None)
    if case.frozen:
        getattr(norm, case.frozen).requires_grad_(False)
    return norm.to(dtype)


def bounds_of(shares: str, num_ranks: int) -> list[int]:
    if num_ranks == 1:
        return [0, SAMPLES]
    kinds = {
        "equal": [SAMPLES * r // num_ranks for r in range(num_ranks + 1)],
        "unequal": [0, 3, 5, SAMPLES],
        "one": [0, 1, 6, SAMPLES],
        "empty": [0, 0, 7, SAMPLES],
    }
    bounds = kinds[shares]
    return bounds if shares == "equal" else [*bounds[:num_ranks], SAMPLES]


def one_case(case: Case, world: World) -> dict[str, float]:
    """The largest error of each result against the whole batch in float64, relative to its size."""
    half = case.dtype in (torch.bfloat16, torch.float16)
    whole, layer = layer_of(case, torch.float64), layer_of(case, torch.float32 if half else case.dtype)
    layer = SyncBatchNorm.like(layer)
    bounds = bounds_of(case.shares, world.num_ranks)
    mine = slice(bounds[world.rank], bounds[world.rank + 1])
    errors: dict[str, float] = {}

    def compare(name: str, found: Tensor | None, expected: Tensor | None) -> None:
        assert (found is None) == (expected is None), name
        if found is not None and expected is not None and found.numel():
            size = float(expected.double().norm()) or 1.0
            errors[name] = max(errors.get(name, 0.0), float((found.double() - expected.double()).norm()) / size)

    generator = torch.Generator().manual_seed(2)
    shape = [SAMPLES, CHANNELS, *[3, 2, 2][: case.dims - 2]]
    for step in range(case.steps):
        x = (torch.randn(shape, generator=generator, dtype=torch.float64) * (step + 1) + 5.0 * step).to(case.dtype)
        weight_of_loss = torch.randn(shape, generator=generator, dtype=torch.float64).to(case.dtype)
        if case.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        outputs, inputs = [], []
        for norm, part in ((whole, slice(0, SAMPLES)), (layer, mine)):
            norm.zero_grad()
            piece = x[part].double() if norm is whole else x[part]
            inputs.append(piece.clone().requires_grad_())
            outputs.append(norm(inputs[-1]))
            (outputs[-1] * weight_of_loss[part].to(outputs[-1].dtype)).sum().backward()
        assert outputs[1].dtype == case.dtype
        assert not case.channels_last or outputs[1].is_contiguous(memory_format=torch.channels_last)
        compare("output", outputs[1].detach(), outputs[0].detach()[mine])
        assert inputs[0].grad is not None
        compare("input gradient", inputs[1].grad, inputs[0].grad[mine])
        for name, param in layer.named_parameters():
            expected = dict(whole.named_parameters())[name].grad
            if param.grad is None:
                compare(f"{name} gradient", None, expected)
            else:
                compare(f"{name} gradient", world.sum(param.grad.clone()), expected)
        for name, buffer in layer.named_buffers():
            compare(name, buffer, dict(whole.named_buffers())[name])
    layer.eval()
    whole.eval()
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(case.dtype)
    compare("evaluation", layer(x).detach(), whole(x.double()).detach())
    return errors


def all_cases(cases: dict[str, Case]) -> dict[str, dict[str, float]]:
    with World.enter(threads=1) as world:
        return {name: one_case(case, world) for name, case in cases.items()}


@pytest.fixture(scope="module")
def errors() -> dict[int, list[dict[str, dict[str, float]]]]:
    """By N and rank; each N is launched once. An empty share has no meaning at N = 1."""
    alone = {name: replace(case, shares="equal") for name, case in CASES.items()}
    return {n: run_ranks(all_cases, n, alone if n == 1 else CASES) for n in (1, 2, 3)}


TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_it_is_batchnorm_on_the_whole_batch(
    errors: dict[int, list[dict[str, dict[str, float]]]], name: str, num_ranks: int
) -> None:
    case = CASES[name]
    for rank in errors[num_ranks]:
        found = rank[name]
        expected = {"evaluation"} | ({"running_mean", "running_var", "num_batches_tracked"} if case.track else set())
        assert expected <= found.keys()
        for what, error in found.items():
            assert error < TOLERANCE[case.dtype], (what, error)
        if case.track:  # statistics are kept in float32, whatever the input is
            assert max(found["running_mean"], found["running_var"]) < 2e-6


def evaluated(track: bool) -> list[float]:
    """Ranks evaluate different numbers of batches."""
    with World.enter(threads=1, timeout_s=20) as world:
        norm = SyncBatchNorm(CHANNELS, track_running_stats=track)
        plain = nn.BatchNorm2d(CHANNELS, track_running_stats=track)
        norm.eval()
        plain.eval()
        found = []
        for k in range(2 - world.rank):
            generator = torch.Generator().manual_seed(k + 10 * world.rank)
            x = torch.randn(3 + world.rank, CHANNELS, 2, 2, generator=generator)
            found.append(float((norm(x) - plain(x)).detach().abs().max()))
        world.barrier()
        return found


@pytest.mark.parametrize("track", [True, False])
def test_evaluation_needs_no_other_rank(track: bool) -> None:
    assert run_ranks(evaluated, 2, track) == [[0.0, 0.0], [0.0]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm2d(4, affine=False)))
        self.shared = nn.BatchNorm1d(4, momentum=None)
        self.again = self.shared
        self.other = nn.ModuleList([self.shared, nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, track_running_stats=True)])
        self.lazy = None


def test_every_batchnorm_is_replaced_and_keeps_names_parameters_and_buffers() -> None:
    net = Net().eval()
    before = {name: id(value) for name, value in [*net.named_parameters(), *net.named_buffers()]}
    keys = list(net.state_dict())
    changed = synchronise(net, CPU)
    assert changed is net
    assert {name: id(value) for name, value in [*net.named_parameters(), *net.named_buffers()]} == before
    assert list(net.state_dict()) == keys
    norms: list[Any] = [net.body[1], net.body[2][0], net.shared, net.again, net.other[0]]  # type: ignore[index]
    assert all(type(one) is SyncBatchNorm and not one.training for one in norms)
    assert isinstance(net.other[1], nn.GroupNorm)
    assert isinstance(net.other[2], nn.InstanceNorm2d)
    assert norms[2].momentum is None
    assert norms[3].running_mean is norms[2].running_mean  # one layer under three names
    assert norms[4].num_batches_tracked is norms[2].num_batches_tracked


def test_a_model_that_is_a_batchnorm() -> None:
    norm = nn.BatchNorm1d(3)
    changed = synchronise(norm, CPU)
    assert isinstance(changed, SyncBatchNorm)
    assert changed.weight is norm.weight


def test_a_model_without_batchnorm_is_left_alone() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    assert synchronise(net, CPU) is net
    assert [type(child) for child in net] == [nn.Linear, nn.LayerNorm]


def test_on_a_gpu_it_is_torchs_own() -> None:
    net = synchronise(nn.Sequential(nn.BatchNorm2d(2)), torch.device("cuda"))
    assert isinstance(net[0], nn.SyncBatchNorm)  # type: ignore[index]


def test_building_it_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    synchronise(Net(), CPU)
    torch.set_rng_state(before)
    net = Net()
    after = torch.get_rng_state()
    synchronise(net, CPU)
    assert torch.equal(torch.get_rng_state(), after)


def wrong_input() -> str:
    with World.enter(threads=1):
        assert dist.get_world_size() > 1
        try:
            SyncBatchNorm(3)(torch.ones(3))
        except ValueError as error:
            return str(error)
        return ""


def test_an_input_without_channels_is_refused() -> None:
    assert run_ranks(wrong_input, 2) == ["expected at least 2 dimensions, got 1"] * 2
