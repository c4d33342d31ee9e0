import pickle
import time

import numpy as np
import pytest
import torch

from lockstep.core.errors import UserError
from lockstep.recipes import scenes
from lockstep.recipes.scenes import CLASSES, GLYPH_SIDES, IGNORE, MAX_SHIFT, DigitSceneSet, Glyphs, load_glyphs


def scene_set(count: int = 20, seed: int = 0, augment: bool = False, digits: int = 8) -> DigitSceneSet:
    return DigitSceneSet(load_glyphs()[0], count, 64, digits, seed, augment)


def test_the_splits_share_no_digit_image() -> None:
    train, val = load_glyphs()
    assert (len(train.digits), len(val.digits)) == (1437, 360)
    assert set(train.digits) == set(val.digits) == set(range(10))
    images = [{image.tobytes() for image in part.ink[0]} for part in (train, val)]
    assert images[0].isdisjoint(images[1])


def test_a_digit_is_whole_at_every_size() -> None:
    train, _ = load_glyphs()
    for side, ink in zip(GLYPH_SIDES, train.ink, strict=True):
        assert ink.shape == (1437, side, side)
        rim = np.concatenate([ink[:, 0], ink[:, -1], ink[:, :, 0], ink[:, :, -1]], axis=1)
        assert (rim < scenes.INK_CORE).all()


def test_a_sample_is_an_image_with_a_label_for_each_pixel() -> None:
    sample = scene_set()[3]
    assert sample["image"].shape == (3, 64, 64) and sample["image"].dtype == torch.float32
    assert sample["image"].min() >= -1.001 and sample["image"].max() <= 1.001
    assert sample["label"].shape == (64, 64) and sample["label"].dtype == torch.int64


def test_labels_are_classes_or_ignored_and_valid_pixels_differ() -> None:
    labels = torch.stack([sample["label"] for sample in (scene_set(40)[i] for i in range(40))])
    assert set(labels.unique().tolist()) == {*range(CLASSES), IGNORE}
    valid = (labels != IGNORE).flatten(1).sum(1)
    assert len(valid.unique()) > 20


def test_a_border_of_ignored_pixels_lies_around_each_digit() -> None:
    for index in range(10):
        _, label = scene_set().draw(index)
        digit, background = (label > 0) & (label != IGNORE), label == 0
        assert digit.any()
        assert not (digit[:, :-1] & background[:, 1:]).any() and not (digit[:-1] & background[1:]).any()
        assert not (digit[:, 1:] & background[:, :-1]).any() and not (digit[1:] & background[:-1]).any()


def test_a_scene_is_a_function_of_seed_and_index() -> None:
    first, again, other = scene_set(), scene_set(), scene_set(seed=1)
    assert torch.equal(first[7]["image"], again[7]["image"])
    assert not torch.equal(first[7]["image"], first[8]["image"])
    assert not torch.equal(first[7]["image"], other[7]["image"])


def test_drawing_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # type: ignore[union-attr]
    scene_set()[0]
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tobytes()  # type: ignore[union-attr]


def test_augmentation_follows_the_global_generator_alone() -> None:
    data = scene_set(augment=True)
    torch.manual_seed(5)
    first, second = data[0], data[0]
    torch.manual_seed(5)
    again = data[0]
    assert torch.equal(first["image"], again["image"]) and torch.equal(first["label"], again["label"])
    assert not torch.equal(first["image"], second["image"])


def test_a_shift_moves_image_and_label_together() -> None:
    data = scene_set(augment=True)
    _, label = data.draw(0)
    cuts = [
        torch.from_numpy(label[top : top + 64, left : left + 64]).long()
        for top in range(2 * MAX_SHIFT + 1)
        for left in range(2 * MAX_SHIFT + 1)
    ]
    found = set()
    for _ in range(8):
        moved = data[0]["label"]
        found.add(next(number for number, cut in enumerate(cuts) if torch.equal(moved, cut)))
    assert len(found) > 4


def test_digits_do_not_overlap() -> None:
    glyphs = load_glyphs()[0]
    ones = Glyphs(glyphs.ink, tuple(np.full_like(label, 1) for label in glyphs.labels), glyphs.digits)
    _, label = DigitSceneSet(ones, 5, 64, 9, 0, False).draw(1)
    # Each place is a full square here: the area is a sum of squares only if none covers another.
    areas = {0}
    for side in GLYPH_SIDES:
        areas = {area + n * side**2 for area in areas for n in range(10)}
    assert int((label > 0).sum()) in areas


def test_an_index_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError, match="scene 20 of 20"):
        scene_set(20)[20]


def test_a_worker_can_have_a_copy() -> None:
    data = scene_set()
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[2]["image"], data[2]["image"])


def test_a_scene_is_cheap() -> None:
    data = scene_set(augment=True)
    spent = []
    for index in range(20):
        start = time.thread_time()
        data[index]
        spent.append(time.thread_time() - start)
    # 0.6 ms on a quiet core; the bound is for a busy one.
    assert sorted(spent)[10] < 5e-3


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install scikit-learn"):
        scenes.require_sklearn()
