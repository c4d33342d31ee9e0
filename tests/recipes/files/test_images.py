from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.Image import Exif, Transpose

from lockstep.recipes.files.bad import BadFile
from lockstep.recipes.files.images import in_colour, opened, read_mask, read_pair, swaps_sides, turn_of

# A quarter of it is red, so that no turn leaves it as it was.
LABELS = np.zeros((4, 6), np.uint8)
LABELS[:2, :3] = 1


def picture() -> Image.Image:
    return Image.fromarray(np.where(LABELS[..., None] == 1, (250, 0, 0), (0, 0, 250)).astype(np.uint8))


def mask_of(labels: np.ndarray, path: Path) -> Path:
    Image.fromarray(labels).save(path)
    return path


def turned_by(orientation: int, path: Path) -> Path:
    """A file that shows `picture()` once it is turned as its metadata says."""
    undo = {3: Transpose.ROTATE_180, 6: Transpose.ROTATE_90, 8: Transpose.ROTATE_270}
    exif = Exif()
    exif[0x0112] = orientation
    picture().transpose(undo[orientation]).save(path, exif=exif)
    return path


def read(path: Path, mask: Path, exif: str = "fit") -> tuple[np.ndarray, np.ndarray]:
    image, labels = read_pair(path, mask, 2, 255, exif)  # type: ignore[arg-type]  # a literal
    return np.asarray(image), labels


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "P", "1", "RGBA", "LA", "YCbCr"])
def test_every_mode_of_8_bits_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = {"CMYK": "jpg", "YCbCr": "jpg"}.get(mode, "png")
    grey = Image.fromarray(np.full((8, 8), 255, np.uint8)).convert("RGB")
    grey.convert(mode).save(tmp_path / f"a.{suffix}")
    with opened(tmp_path / f"a.{suffix}") as image:
        colour = in_colour(image, tmp_path)
        colour.load()
    assert colour.mode == "RGB" and np.asarray(colour).min() > 250


@pytest.mark.parametrize(("dtype", "bits"), [(np.uint16, "16-bit"), (np.int32, "32-bit"), (np.float32, "32-bit")])
def test_a_picture_of_more_bits_is_refused(tmp_path: Path, dtype: type, bits: str) -> None:
    path = tmp_path / ("a.png" if dtype is np.uint16 else "a.tif")
    Image.fromarray(np.full((4, 4), 300, dtype)).save(path)
    with pytest.raises(BadFile, match=rf"a\.(png|tif).* {bits} values"), opened(path) as image:
        in_colour(image, path)


def test_a_palette_with_transparency_gives_colours_without_a_warning(tmp_path: Path) -> None:
    image = picture().quantize(4)
    image.save(tmp_path / "a.png", transparency=bytes([0, 128, 255, 255]))
    with opened(tmp_path / "a.png") as again:
        assert np.asarray(in_colour(again, tmp_path))[0, 0, 0] > 240


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["palette", "grey"])
def test_a_mask_is_read_as_it_was_written_at_any_depth(tmp_path: Path, bits: int, kind: str) -> None:
    labels = (np.arange(24).reshape(4, 6) % min(2**bits, 10)).astype(np.uint8)
    path = tmp_path / "a.png"
    if kind == "palette":
        image = Image.fromarray(labels).convert("P")
        image.putpalette(list(range(256)) * 3)
        image.save(path, bits=bits)
    elif bits == 8:
        Image.fromarray(labels).save(path)
    else:
        path.write_bytes(grey_png(labels, bits))
    assert np.array_equal(read_mask(path, 10, 255), labels)


def grey_png(labels: np.ndarray, bits: int) -> bytes:
    """Pillow writes no grey values of 2 or 4 bits."""
    import struct
    import zlib

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    planes = np.unpackbits(labels[..., None], axis=2)[..., 8 - bits :].reshape(len(labels), -1)
    rows = b"".join(b"\0" + np.packbits(row).tobytes() for row in planes)
    header = struct.pack(">IIBBBBB", labels.shape[1], labels.shape[0], bits, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def test_a_label_outside_the_classes_is_named_with_its_place(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[2:, 4:] = 9
    labels[0, 5] = 7
    with pytest.raises(BadFile) as caught:
        read_mask(mask_of(labels, tmp_path / "a.png"), 2, 255)
    assert caught.value.what == "holds label 9 (4 px, first in row 2, column 4), and 1 more such labels"
    assert caught.value.must == "0 .. 1, or 255 (ignored)"
    labels[labels > 1] = 255
    assert read_mask(mask_of(labels, tmp_path / "b.png"), 2, 255).max() == 255


@pytest.mark.parametrize("orientation", [6, 8])
def test_a_turned_picture_follows_the_size_of_its_mask(tmp_path: Path, orientation: int) -> None:
    image = turned_by(orientation, tmp_path / "a.png")
    upright, labels = read(image, mask_of(LABELS, tmp_path / "upright.png"))
    assert np.array_equal(upright[..., 0] > 128, labels == 1)
    stored, _ = read(image, mask_of(LABELS.T.copy(), tmp_path / "stored.png"))
    assert stored.shape[:2] == (6, 4)
    with pytest.raises(BadFile, match=r"stored\.png is 4 x 6 px, its image 6 x 4 px"):
        read(image, tmp_path / "stored.png", "apply")
    assert read(image, tmp_path / "stored.png", "ignore")[0].shape[:2] == (6, 4)


def test_a_mask_that_fits_both_ways_is_not_guessed(tmp_path: Path) -> None:
    image, mask = turned_by(3, tmp_path / "a.png"), mask_of(LABELS, tmp_path / "m.png")
    with pytest.raises(BadFile, match="fits both ways") as caught:
        read(image, mask)
    assert "options.exif=apply" in caught.value.must
    assert np.array_equal(read(image, mask, "apply")[0][..., 0] > 128, LABELS == 1)
    assert not np.array_equal(read(image, mask, "ignore")[0][..., 0] > 128, LABELS == 1)


def test_broken_metadata_turns_nothing(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff broken")
    with opened(tmp_path / "a.jpg") as image:
        assert turn_of(image) is None
    assert not swaps_sides(None) and swaps_sides(Transpose.TRANSVERSE) and not swaps_sides(Transpose.ROTATE_180)
