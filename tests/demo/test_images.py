from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import asyncdata as ad
from asyncdata.demo.images import SIDE, augment, decode_image, encode_jpeg, window


def gradient(height: int, width: int) -> np.ndarray:
    return np.broadcast_to(np.linspace(0, 200, width, dtype=np.uint8)[:, None], (height, width, 3)).copy()


def test_an_image_survives_its_encoding() -> None:
    image = gradient(50, 80)
    decoded = np.asarray(decode_image(encode_jpeg(image)))
    assert decoded.shape == (50, 80, 3)
    assert np.abs(decoded.astype(int) - image).max() < 20


@pytest.mark.parametrize(("mode", "file_format"), [("L", "PNG"), ("RGBA", "PNG"), ("P", "GIF"), ("CMYK", "JPEG")])
def test_other_formats_and_colours(mode: str, file_format: str) -> None:
    file = io.BytesIO()
    Image.fromarray(gradient(30, 30)).convert(mode).save(file, file_format)
    assert np.asarray(decode_image(file.getvalue())).shape == (30, 30, 3)


@pytest.mark.parametrize("encoded", [b"", b"no image", encode_jpeg(gradient(64, 64))[:200]])
def test_what_is_no_image_is_data_lost(encoded: bytes) -> None:
    with pytest.raises(ad.DataLossError, match="cannot be decoded"):
        decode_image(encoded)


@pytest.mark.parametrize("size", [(1, 1), (10, 30), (64, 64), (300, 200)])
@pytest.mark.parametrize("place", [(0, 0), (0.5, 0.5), (1, 1)])
def test_a_window_of_any_image_has_one_size(size: tuple[int, int], place: tuple[float, float]) -> None:
    cut = window(Image.fromarray(gradient(*size)), *place)
    assert cut.shape == (SIDE, SIDE, 3)
    assert cut.dtype == np.uint8


def test_a_window_lies_where_it_was_asked_for() -> None:
    image = Image.fromarray(gradient(64, 256))
    left, middle, right = (window(image, across, 0).mean() for across in (0, 0.5, 1))
    assert left < 30
    assert 90 < middle < 110
    assert right > 170


def test_augmenting_depends_on_the_bytes_alone() -> None:
    image = Image.fromarray(gradient(100, 100))
    results = [augment(image, bytes([key])) for key in range(40)]
    again = [augment(image, bytes([key])) for key in reversed(range(40))][::-1]
    assert all(np.array_equal(one, other) for one, other in zip(results, again))
    assert len({result.tobytes() for result in results}) > 30


def test_augmenting_mirrors_some_and_changes_brightness_by_a_tenth_at_most() -> None:
    image = Image.fromarray(gradient(100, 100))
    changed = [augment(image, bytes([key])) for key in range(40)]
    mirrored = [bool(each[:, 0].mean() > each[:, -1].mean()) for each in changed]
    assert 10 < sum(mirrored) < 30
    assert all(60 < each.mean() < 140 for each in changed)
