import numpy as np
import torch
from PIL import Image

from lockstep.recipes.files.pixels import MEAN, STD, draws, jittered, normalised


def grey(value: int) -> Image.Image:
    return Image.new("RGB", (5, 4), (value, value, value))


def test_draws_follow_the_global_generator_and_no_default_type() -> None:
    torch.manual_seed(3)
    first = draws(4)
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        again = draws(4)
        assert normalised(grey(9)).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert first == again and len(set(first)) == 4 and all(0 <= draw < 1 for draw in first)


def test_a_picture_is_seen_as_distance_from_the_mean() -> None:
    seen = normalised(Image.new("RGB", (5, 4), (0, 255, 128)))
    assert seen.shape == (3, 4, 5) and seen.dtype == torch.float32
    expected = [(value / 255 - mean) / std for value, mean, std in zip((0, 255, 128), MEAN, STD, strict=True)]
    torch.testing.assert_close(seen[:, 0, 0], torch.tensor(expected))
    assert normalised(Image.new("RGB", (2, 2), tuple(round(255 * mean) for mean in MEAN))).abs().max() < 0.01


def test_jitter_changes_brightness_contrast_and_saturation_within_its_strength() -> None:
    assert np.asarray(jittered(grey(100), 0.5, [0.0, 0.5, 0.5])).max() == 50
    assert np.asarray(jittered(grey(100), 0.5, [1.0, 0.5, 0.5])).min() == 150
    colourful = Image.new("RGB", (4, 4), (200, 50, 50))
    pale = np.asarray(jittered(colourful, 1.0, [0.5, 0.5, 0.0]))[0, 0]
    assert pale.max() == pale.min()
    halves = Image.fromarray(np.repeat(np.array([[[60] * 3], [[180] * 3]], np.uint8), 4, axis=1))
    flat = np.asarray(jittered(halves, 1.0, [0.5, 0.0, 0.5]))
    assert flat.max() - flat.min() <= 1
    assert jittered(colourful, 0.0, [0.0, 0.0, 0.0]) is colourful
