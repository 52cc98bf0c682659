from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import asyncdata as ad
from asyncdata.demo.images import SIDE, augment, decode_image, encode_jpeg


def gradient(height: int, width: int) -> np.ndarray:
    return np.broadcast_to(np.linspace(0, 200, width, dtype=np.uint8)[:, None], (height, width, 3)).copy()


def test_an_image_survives_its_encoding() -> None:
    image = gradient(SIDE, SIDE)
    decoded = decode_image(encode_jpeg(image))
    assert decoded.shape == (SIDE, SIDE, 3)
    assert np.abs(decoded.astype(int) - image).max() < 20


@pytest.mark.parametrize("size", [(10, 30), (200, 300), (64, 65)])
def test_other_sizes_are_brought_to_size(size: tuple[int, int]) -> None:
    assert decode_image(encode_jpeg(gradient(*size))).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize(("mode", "file_format"), [("L", "PNG"), ("RGBA", "PNG"), ("P", "GIF"), ("CMYK", "JPEG")])
def test_other_formats_and_colours(mode: str, file_format: str) -> None:
    file = io.BytesIO()
    Image.fromarray(gradient(SIDE, SIDE)).convert(mode).save(file, file_format)
    assert decode_image(file.getvalue()).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize("encoded", [b"", b"no image", encode_jpeg(gradient(64, 64))[:200]])
def test_what_is_no_image_is_data_lost(encoded: bytes) -> None:
    with pytest.raises(ad.DataLossError, match="cannot be decoded"):
        decode_image(encoded)


def test_augmenting_depends_on_the_bytes_alone() -> None:
    image = gradient(SIDE, SIDE)
    before = image.copy()
    results = [augment(image, bytes([key])) for key in range(40)]
    again = [augment(image, bytes([key])) for key in reversed(range(40))][::-1]
    assert all(np.array_equal(one, other) for one, other in zip(results, again))
    assert np.array_equal(image, before)
    assert len({result.tobytes() for result in results}) > 10


def test_augmenting_mirrors_and_lights_by_a_tenth_at_most() -> None:
    image = gradient(SIDE, SIDE)
    for key in range(40):
        changed = augment(image, bytes([key])).astype(float)
        nearest = min((image, image[:, ::-1]), key=lambda candidate: np.abs(changed - candidate).sum())
        assert np.all(changed <= nearest * 1.1 + 1)
        assert np.all(changed >= nearest * 0.9 - 1)
