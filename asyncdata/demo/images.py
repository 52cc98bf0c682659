"""Images in and out of JPEG bytes, and the small random changes that training makes to them."""

from __future__ import annotations

import io
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import asyncdata as ad
from asyncdata.demo.extra import require

__all__ = ("SIDE", "augment", "decode_image", "encode_jpeg", "window")

SIDE: Final = 64
"""Height and width in pixels of every image that the classifier sees."""

WINDOW: Final = 7 / 8
"""The side of the window that is cut from an image, as a share of the image's shorter side."""

LEVELS: Final = np.arange(256, dtype=np.float32)
BRIGHTNESS: Final = [np.clip(LEVELS * f, 0, 255).astype(np.uint8) for f in np.linspace(0.9, 1.1, 16, dtype=np.float32)]


def encode_jpeg(image: NDArray[np.uint8]) -> bytes:
    """Return `image`, height x width x 3, as the bytes of a JPEG file."""
    file = io.BytesIO()
    require("PIL.Image").fromarray(image).save(file, "JPEG", quality=90)
    return file.getvalue()


def decode_image(encoded: bytes) -> Any:
    """Return the image in `encoded`, of any format that Pillow reads, as a Pillow image in RGB."""
    try:
        return require("PIL.Image").open(io.BytesIO(encoded)).convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise ad.DataLossError(f"an image of {len(encoded)} bytes cannot be decoded: {error}") from error


def window(image: Any, across: float, down: float) -> NDArray[np.uint8]:
    """Return a square cut from a Pillow image at a place between 0 and 1 each way, brought to `SIDE` x `SIDE`."""
    width, height = image.size
    side = min(width, height) * WINDOW
    left, top = across * (width - side), down * (height - side)
    bilinear = require("PIL.Image").Resampling.BILINEAR
    return np.asarray(image.resize((SIDE, SIDE), bilinear, box=(left, top, left + side, top + side)))


def augment(image: Any, encoded: bytes) -> NDArray[np.uint8]:
    """Return a window somewhere in `image`, perhaps mirrored, and a little brighter or darker.

    The changes depend only on the encoded bytes of the image, so they are the same in any thread, at any time.
    """
    key = zlib.crc32(encoded)
    cut = window(image, (key & 0xFF) / 255, (key >> 8 & 0xFF) / 255)
    mirrored = cut[:, ::-1] if key >> 16 & 1 else cut
    return BRIGHTNESS[(key >> 17) % len(BRIGHTNESS)][mirrored]
