"""Which modules are blocks."""

import pytest
from torch import Tensor, nn

from lockstep.core.errors import UserError
from lockstep.runtime.parallel.blocks import blocks_of


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
        self.out = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inner[0](x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.tail = nn.ModuleList([nn.Linear(2, 2), nn.Identity()])
        self.head = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", ["layers.0", "layers.1", "tail.0"]),
        ([], []),
        (["layers.*"], ["layers.0", "layers.1"]),
        (["Layer", "head"], ["layers.0", "layers.1", "head"]),
        (["Linear"], ["layers.0.inner.0", "layers.0.out", "layers.1.inner.0", "layers.1.out", "tail.0", "head.0"]),
        (["layers.1", "layers.1.*"], ["layers.1"]),
    ],
)
def test_outermost_modules_with_parameters_in_order(choice: list[str], names: list[str]) -> None:
    assert list(blocks_of(Model(), choice)) == names


def test_a_list_of_lists_gives_the_modules_that_are_called() -> None:
    pairs = nn.ModuleList(nn.ModuleList([nn.Linear(2, 2), nn.ModuleDict({"ff": nn.Linear(2, 2)})]) for _ in range(2))
    model = nn.ModuleDict({"layers": pairs})
    assert list(blocks_of(model, "auto")) == ["layers.0.0", "layers.0.1.ff", "layers.1.0", "layers.1.1.ff"]
    with pytest.raises(UserError, match=r"(?s)layers.0 is a ModuleList.*layers\.0\.\*"):
        blocks_of(model, ["layers.?"])


def test_a_module_that_stands_twice_is_one_block() -> None:
    layer = nn.Linear(2, 2)
    assert len(blocks_of(nn.ModuleDict({"all": nn.ModuleList([layer, layer])}), "auto")) == 1


def test_a_pattern_that_fits_nothing_is_named_beside_what_there_is() -> None:
    with pytest.raises(
        UserError, match=r"(?s)parallel.blocks: no module of Model fits blocks\.\*.*embed, layers"
    ) as error:
        blocks_of(Model(), ["layers.*", "blocks.*"])
    assert "Layer" in str(error.value)
