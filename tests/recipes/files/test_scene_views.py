import numpy as np
import pytest
import torch
from PIL import Image

from lockstep.recipes.files.scene_views import RandomScene, WholeScene, window


def scene(width: int = 40, height: int = 30) -> tuple[Image.Image, np.ndarray]:
    """A picture that shows its own labels: red is class 1, blue class 0."""
    mask = np.zeros((height, width), np.uint8)
    mask[height // 3 :, : width // 2] = 1
    pixels = np.where(mask[..., None] == 1, (255, 0, 0), (0, 0, 255)).astype(np.uint8)
    return Image.fromarray(pixels), mask


def view(**changes: object) -> RandomScene:
    settings = {"side": 32, "scale": (0.5, 2.0), "flip": 0.5, "jitter": 0.0, "ignore": 255, **changes}
    return RandomScene(**settings)  # type: ignore[arg-type]  # of the types of RandomScene


@pytest.mark.parametrize(
    ("have", "want", "draw", "expected"),
    [(40, 32, 0.0, (0, 0, 32)), (40, 32, 0.999, (8, 0, 32)), (32, 32, 0.7, (0, 0, 32)), (20, 32, 0.999, (0, 12, 20))],
)
def test_a_window_lies_within_both(have: int, want: int, draw: float, expected: tuple[int, int, int]) -> None:
    assert window(have, want, draw) == expected


def test_labels_stay_on_their_pixels_whatever_is_drawn() -> None:
    torch.manual_seed(0)
    seen = []
    for _ in range(60):
        sample = view()(*scene())
        image, label = sample["image"], sample["label"]
        assert image.shape == (3, 32, 32) and image.dtype == torch.float32
        assert label.shape == (32, 32) and label.dtype == torch.uint8
        red, blue, padding = image[0] > image[2], image[0] < image[2], (image == 0).all(0)
        # A pixel on the edge is a mix of both colours; all others show their label.
        wrong = (red & (label == 0)) | (blue & (label == 1)) | (padding != (label == 255))
        assert wrong.sum() <= 64
        seen.append((int((label == 255).sum()), int((label == 1).sum())))
    assert len(set(seen)) > 40
    assert any(padded == 0 for padded, _ in seen) and any(padded > 500 for padded, _ in seen)


def test_a_sample_is_a_function_of_the_generator_alone() -> None:
    torch.manual_seed(7)
    first, second = view(jitter=0.4)(*scene()), view(jitter=0.4)(*scene())
    torch.manual_seed(7)
    again = view(jitter=0.4)(*scene())
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["image"], second["image"])


def test_without_scale_nothing_but_the_place_changes() -> None:
    picture, mask = scene()
    torch.manual_seed(0)
    sample = view(scale=(1.0, 1.0), flip=0.0, side=24)(picture, mask)
    cuts = [mask[y : y + 24, x : x + 24] for y in range(7) for x in range(17)]
    assert any(np.array_equal(sample["label"].numpy(), cut) for cut in cuts)


def test_flip_mirrors_both() -> None:
    picture, mask = scene(32, 32)
    for flip, expected in ((0.0, mask), (1.0, mask[:, ::-1])):
        sample = view(scale=(1.0, 1.0), flip=flip)(picture, mask)
        assert np.array_equal(sample["label"].numpy(), expected)
        assert torch.equal(sample["image"][0] > 0, torch.from_numpy(expected.copy()) == 1)


def test_evaluation_sees_the_whole_picture_and_counts_each_pixel_once() -> None:
    picture, mask = scene(30, 20)
    sample = WholeScene(32, 255)(picture, mask)
    assert np.array_equal(sample["label"][:20, :30].numpy(), mask)
    assert (sample["label"] != 255).sum() == 600 and (sample["image"][:, 20:] == 0).all()
    large = WholeScene(32, 255)(*scene(100, 50))
    assert (large["label"] != 255).sum() == 32 * 16


def test_a_picture_of_one_pixel_and_a_very_long_one_are_taken() -> None:
    for size in ((1, 1), (400, 2)):
        image, mask = Image.new("RGB", size), np.zeros(size[::-1], np.uint8)
        for make in (view(), WholeScene(32, 255)):
            assert (make(image, mask)["label"] == 0).any()
