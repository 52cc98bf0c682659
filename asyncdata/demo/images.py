"""Images in and out of JPEG bytes, and the small random changes that training makes to them."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import asyncdata as ad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("SIDE", "augment", "decode_image", "encode_jpeg", "require_pillow")

SIDE: Final = 64
"""Height and width in pixels of every image that the classifier sees."""

LEVELS: Final = np.arange(256, dtype=np.float32)
BRIGHTNESS: Final = [np.clip(LEVELS * f, 0, 255).astype(np.uint8) for f in np.linspace(0.9, 1.1, 16, dtype=np.float32)]


def require_pillow() -> Any:
    """Return the module `PIL.Image`, or say how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ad.MissingDependencyError("images need Pillow: pip install 'asyncdata[demo]'") from error
    return Image


def encode_jpeg(image: NDArray[np.uint8]) -> bytes:
    """Return `image`, height x width x 3, as the bytes of a JPEG file."""
    file = io.BytesIO()
    require_pillow().fromarray(image).save(file, "JPEG", quality=90)
    return file.getvalue()


def decode_image(encoded: bytes) -> NDArray[np.uint8]:
    """Return the image in `encoded`, of any format that Pillow reads, as `SIDE` x `SIDE` x 3."""
    try:
        image = require_pillow().open(io.BytesIO(encoded))
        image.draft("RGB", (SIDE, SIDE))
        image = image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise ad.DataLossError(f"an image of {len(encoded)} bytes cannot be decoded: {error}") from error
    return np.asarray(image if image.size == (SIDE, SIDE) else image.resize((SIDE, SIDE)))


def augment(image: NDArray[np.uint8], encoded: bytes) -> NDArray[np.uint8]:
    """Return `image` perhaps mirrored, and a little brighter or darker.

    The change hangs on the bytes that the image was decoded from and on nothing else, so that it is the same whichever
    thread makes it, and whenever.
    """
    key = zlib.crc32(encoded)
    mirrored = image[:, ::-1] if key & 1 else image
    return BRIGHTNESS[(key >> 1) % len(BRIGHTNESS)][mirrored]
