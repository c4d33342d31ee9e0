"""Ranks whose weights differ are found, in the step and by the name, and healthy ones are left alone."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.core.errors import RunError
from lockstep.runtime.parallel.same import SameCheck, number_of
from lockstep.runtime.training import fit
from lockstep.runtime.world import World
from tests.ranks import run_ranks
from tests.runtime.tasks import Segment, config_of


def flip(values: Tensor, element: int, bit: int) -> None:
    """Change one bit of one element."""
    changed = values.detach().reshape(-1).clone()
    changed.view(torch.int32)[element] ^= 1 << bit
    with torch.no_grad():
        values.copy_(changed.view_as(values))


class Hit(Segment):
    """A task one of whose ranks has a bit of its weights changed at a step."""

    def __init__(self, name: str, element: int, bit: int) -> None:
        super().__init__(length=200, batchnorm=True, dropout=0.2)
        self.name, self.element, self.bit = name, element, bit

    def model(self) -> nn.Module:
        self.net = super().model()
        return self.net

    def hit(self) -> None:
        flip(self.net.get_parameter(self.name), self.element, self.bit)


def damaged(folder: Path, rank: int, at: int, name: str, element: int, bit: int, every: int) -> str:
    with World.enter(threads=1) as world:
        task = Hit(name, element, bit)
        config = config_of("batch.global_batch=12", "stop.epochs=2", f"parallel.check_every={every}", "precision=fp32")

        def on_step(done: int) -> None:
            if done == at and world.rank == rank:
                task.hit()

        try:
            fit(task, config, world, folder, on_step=on_step)
        except RunError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_one_bit_on_one_rank_is_found_within_the_steps_between_two_comparisons(tmp_path: Path, num_ranks: int) -> None:
    rank, at, bit, element = random.randrange(num_ranks), random.randint(1, 12), random.choice([0, 9, 22]), 7
    told = run_ranks(damaged, num_ranks, tmp_path, rank, at, "stem.weight", element, bit, 5)
    assert told == [told[0]] * num_ranks
    step = int(re.match(r"step (\d+): the weights are no longer the same", told[0])[1])  # type: ignore[index]
    assert at < step <= at + 5 and step % 5 == 0, (rank, at, bit, told[0])
    assert "First in stem.weight (rank" in told[0] and "1 of 162 elements, the first is" in told[0]
    assert f"no comparison up to step {step - 5} saw it" in told[0]
    assert "lockstep verify" in told[0]
    if num_ranks == 3:
        others = ", ".join(str(other) for other in range(3) if other != rank)
        assert f"rank {rank} differs from ranks {others}." in told[0]
    else:
        assert "rank 0 and rank 1 differ." in told[0]


@pytest.mark.parametrize("every", [0, 1, 3])
def test_a_healthy_run_hears_nothing(tmp_path: Path, every: int) -> None:
    assert run_ranks(damaged, 3, tmp_path, 9, 1, "stem.weight", 0, 0, every) == ["", "", ""]


def test_switched_off_it_finds_nothing(tmp_path: Path) -> None:
    assert run_ranks(damaged, 2, tmp_path, 1, 3, "stem.weight", 0, 9, 0) == ["", ""]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.kernel = nn.Parameter(torch.randn(8, 3, 2, 2, generator=generator).to(memory_format=torch.channels_last))
        self.table = nn.Parameter(torch.randn(30, 10, generator=generator))
        self.low = nn.Parameter(torch.randn(7, generator=generator).bfloat16())
        self.wave = nn.Parameter(torch.complex(torch.ones(4), torch.ones(4)))
        self.empty = nn.Parameter(torch.zeros(0, 5))
        self.scalar = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))


def sized(window: int, world: Any = None) -> SameCheck:
    check = SameCheck(Layers(), world or World(None, torch.device("cpu")), 1, 0)  # type: ignore[arg-type]
    check.window = window
    check.num_windows = -(-check.total // window)
    return check


@pytest.mark.parametrize("window", [7, 50, 10_000])
def test_every_element_is_looked_at_once_the_window_has_passed(window: int) -> None:
    check = sized(window)
    before = [check.digest(turn) for turn in range(check.num_windows)]
    assert before == [check.digest(turn) for turn in range(check.num_windows)]
    for name, param in check.named.items():
        for element in range(param.numel()):
            kept = param.detach().clone()
            spot = torch.unravel_index(torch.tensor(element), param.shape)
            with torch.no_grad():
                param[tuple(spot)] = param[tuple(spot)] * 1.01 + 0.001
            after = [check.digest(turn) for turn in range(check.num_windows)]
            assert after != before, (name, element)
            with torch.no_grad():
                param.copy_(kept)


@pytest.mark.parametrize("name", ["kernel", "table", "low", "wave", "scalar"])
def test_a_parameter_that_differs_as_a_whole_is_seen_at_once(name: str) -> None:
    check = sized(7)
    before = [check.digest(turn) for turn in range(check.num_windows)]
    with torch.no_grad():
        check.named[name].mul_(1.5)
    assert all(check.digest(turn) != old for turn, old in enumerate(before))


@pytest.mark.parametrize("change", [lambda x: x.flip(0), lambda x: -x, lambda x: x + (x == 5).int()])
def test_places_count_in_a_digest(change: Callable[[Tensor], Tensor]) -> None:
    numbers = torch.arange(100, dtype=torch.int32)
    assert number_of([numbers]) != number_of([change(numbers)])


def windows(steps: list[int], at: int) -> str:
    with World.enter(threads=1) as world:
        check = sized(50, world)
        for step in steps:
            if step == at and world.rank == 1:
                flip(check.named["table"], 250, 3)
            try:
                check.after(step)
            except RunError as error:
                return str(error)
    return ""


def test_the_last_comparison_of_the_same_part_is_named() -> None:
    (told, other) = run_ranks(windows, 2, list(range(1, 40)), 11)
    assert told == other
    found = re.match(r"step (\d+): ", told)
    last = re.search(r"this part of the weights was last compared after step (\d+)", told)
    assert found and last
    assert 11 <= int(found[1]) <= 11 + sized(50).num_windows
    assert int(last[1]) == int(found[1]) - sized(50).num_windows
    assert "element" in told and "table" in told
