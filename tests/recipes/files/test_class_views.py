from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.Image import Exif, Transpose

from lockstep.recipes.files.bad import BadFile
from lockstep.recipes.files.class_views import Middle, RandomPart, read_part


def ramp(width: int = 320, height: int = 240) -> Image.Image:
    """Red grows to the right, green to the bottom."""
    down, across = np.mgrid[0:height, 0:width]
    pixels = np.stack([across * 255 // width, down * 255 // height, np.zeros_like(down)], axis=2)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ramp().save(tmp_path / "a.jpg", quality=95)
    return tmp_path / "a.jpg"


def whole(width: int, height: int) -> tuple[float, float, float, float]:
    return 0, 0, width, height


def test_a_part_shows_what_lies_there_at_any_size(path: Path) -> None:
    sides = []

    def right_half(width: int, height: int) -> tuple[float, float, float, float]:
        sides.append((width, height))
        return width / 2, 0, width, height

    for side in (16, 100, 400):
        pixels = np.asarray(read_part(path, right_half, side))
        assert pixels.shape == (side, side, 3)
        assert abs(pixels[:, 0, 0].mean() - 128) < 10 and pixels[:, -1, 0].mean() > 240
        assert pixels[0, :, 1].mean() < 12 and pixels[-1, :, 1].mean() > 240
    assert sides == [(320, 240)] * 3


def test_a_small_part_of_a_large_jpeg_is_decoded_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    resize = Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *a, **k: sizes.append(self.size) or resize(self, *a, **k))
    read_part(path, whole, 24)
    read_part(path, lambda width, height: (0, 0, 30, 30), 24)
    assert sizes == [(40, 30), (320, 240)]


def test_a_picture_is_turned_as_the_camera_says(path: Path, tmp_path: Path) -> None:
    exif = Exif()
    exif[0x0112] = 6
    ramp().transpose(Transpose.ROTATE_90).save(tmp_path / "turned.jpg", quality=95, exif=exif)
    seen = [np.asarray(read_part(one, whole, 32)).astype(int) for one in (path, tmp_path / "turned.jpg")]
    assert abs(seen[0] - seen[1]).max() < 12


def test_random_parts_are_a_function_of_the_generator_alone(path: Path) -> None:
    view = RandomPart(24, (0.2, 1.0), 0.5, 0.2)
    torch.manual_seed(4)
    first, second = view(path), view(path)
    torch.manual_seed(4)
    assert torch.equal(first, view(path)) and not torch.equal(first, second)
    assert first.shape == (3, 24, 24) and first.dtype == torch.float32


def test_random_parts_have_the_share_of_the_area_that_was_asked_for() -> None:
    view = RandomPart(24, (0.25, 0.5), 0.0, 0.0)
    torch.manual_seed(0)
    for _ in range(50):
        width, height = view._shape(300, 200, torch.rand(10, 2).tolist())
        assert 0.24 < width * height / 60_000 < 0.51 and 0.74 < width / height < 1.34
    # None fits into a picture that is far wider than high: the largest square.
    assert RandomPart(24, (0.9, 1.0), 0, 0)._shape(900, 10, torch.rand(10, 2).tolist()) == (10, 10)


def test_flip_mirrors(path: Path) -> None:
    parts = []
    for flip in (0.0, 1.0):
        torch.manual_seed(0)
        parts.append(RandomPart(24, (0.5, 1.0), flip, 0.0)(path))
    assert torch.equal(parts[0].flip(-1), parts[1])


def test_the_middle_is_the_same_at_each_call(path: Path) -> None:
    first = Middle(24, 0.5)(path)
    assert torch.equal(first, Middle(24, 0.5)(path))
    # Half of the shorter side: x from 100 to 220 of 320.
    red = first[0].mean(0) * 0.229 + 0.485
    assert abs(float(red[0]) - 102 / 320) < 0.02 and abs(float(red[-1]) - 217 / 320) < 0.02


def test_a_bad_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("text")
    with pytest.raises(BadFile, match="is not an image: it begins b'text'"):
        Middle(24, 1.0)(tmp_path / "a.jpg")
