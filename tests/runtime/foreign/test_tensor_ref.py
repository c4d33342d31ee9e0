"""A reference that contradicts itself is no tensor."""

import pytest

from lockstep.runtime.foreign.tensor_ref import Storage, TensorRef
from lockstep.runtime.foreign.window import DamagedFileError, Window


def ref(offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: str = "float32") -> TensorRef:
    storage = Storage("0", "float32", 6)
    storage.window = Window.of(bytes(24))
    return TensorRef(storage, offset, shape, stride, dtype)


@pytest.mark.parametrize(
    "wrong",
    [
        ref(0, (7,), (1,)),
        ref(1, (6,), (1,)),
        ref(0, (2, 3), (4, 1)),
        ref(-1, (2,), (1,)),
        ref(0, (2,), (-1,)),
        ref(0, (2, 2), (1,)),
        ref(0, (10**12,), (0,)),
        ref(0, (2,), (1,), "float33"),
        ref(0, (4,), (1,), "float64"),
        ref(0, (True,), (1,)),
        ref(0, (0, 10**30), (1, 1)),
        ref(0, (0, 2**62, 2**62), (1, 1, 1)),
        ref(0, (1,) * 65, (1,) * 65),
        ref(0, (10**5000,), (0,)),
        ref(0, (1,), (10**5000,)),
    ],
)
def test_what_does_not_fit_is_refused(wrong: TensorRef) -> None:
    with pytest.raises(DamagedFileError):
        wrong.checked()


def test_what_fits_is_read() -> None:
    good = ref(1, (2, 2), (3, 1)).checked()
    assert good.span == 5 and good.load().shape == (2, 2)
    assert ref(6, (0, 4), (4, 1)).checked().load().shape == (0, 4)
    assert good.identity != ref(1, (2, 2), (3, 1)).identity or good.storage.window is not None
