import pytest

from lockstep.launch.health.check import Asked, size
from lockstep.launch.nodes import Nodes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (4096, "4 KiB"), (64 * 2**20, "64 MiB"), (1.5 * 2**30, "1.5 GiB"), (3 * 2**40, "3072.0 GiB")],
)
def test_sizes(num_bytes: float, text: str) -> None:
    assert size(num_bytes) == text


def test_several_nodes() -> None:
    assert not Asked().several
    assert Asked(nodes=Nodes(2)).several
