"""decode_image: a picture as an array, decoded by the best package that is installed."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError, PlanError, StructureError
from asyncdata.system.optional_packages import require

__all__ = ("DECODERS", "decode_image", "is_installed", "jpeg_components", "jpeg_frame")

Pixels: TypeAlias = npt.NDArray[np.uint8]

Decoder: TypeAlias = Callable[[bytes, int], Pixels]

MODES: Final = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
"""Pillow's names of pictures with values of at most 8 bits."""

DEEP: Final = re.compile(";16[BLN]")
"""In Pillow's names of how values are stored: two bytes each. Those of BMP, as "BGR;16", are for a pixel."""

NO_FRAMES: Final = frozenset({0xC4, 0xC8, 0xCC})
"""Markers between those of the frames of a JPEG file that are none."""

VERSIONS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "torchcodec": ((0, 16), (1 << 30,)),
    "torchvision": ((), (0, 29)),
}
"""The first version that decodes JPEG, and the first one that warns that it will not for long."""

ADOBE: Final = 0xEE
"""The marker by which Adobe's programs say which colours a file stores."""

GREY, RGB = 1, 3


def decode_image(contents: bytes, *, channels: int = RGB) -> Pixels:
    """Return a picture as a new array of (height, width, `channels`), uint8: red, green and blue, or grey for 1.

    JPEG is decoded by the first of simplejpeg, torchcodec from 0.16 on, torchvision before 0.29, Pillow and OpenCV that
    is installed, with the same result in RGB, and in grey within 1; all else that Pillow reads (PNG, WebP, GIF, TIFF
    and so on, JPEG in CMYK) by Pillow.
    Of several frames it is the first.

    Values are those that are stored: transparency is left out, a colour profile is not applied, and the picture is not
    turned as its EXIF says. A damaged picture, or one that is cut short, is a `DataLossError`; one with more than 8
    bits per value a `StructureError`, in colour of PNG, TIFF and PPM, where Pillow tells.

    >>> import asyncdata as ad, io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 2), (255, 0, 0)).save(file, "PNG")
    >>> ad.decode_image(file.getvalue()).shape, ad.decode_image(file.getvalue())[0, 0]
    ((2, 4, 3), array([255,   0,   0], dtype=uint8))
    """
    if channels not in (GREY, RGB):
        raise PlanError(f"decode_image(channels=) must be 1 or 3, got {channels!r:.80}")
    data = bytes_of(contents)
    name = decoder_name() if jpeg_components(data) in (GREY, RGB) else "PIL"
    if name != "PIL":
        try:
            return DECODERS[name](data, channels)
        except (ValueError, RuntimeError) as error:
            if not find_spec("PIL"):
                raise DataLossError(f"decode_image: {len(data)} bytes are no picture: {error}") from None
    return DECODERS["PIL"](data, channels)  # which reads all, and knows best what is wrong


def bytes_of(contents: Any) -> bytes:
    """Return the bytes of a file; `PlanError` for something else, such as its path."""
    if isinstance(contents, (str, os.PathLike)) or hasattr(contents, "read"):
        raise PlanError(
            f"decode_image takes the bytes of a file, got {cast('Any', contents)!r:.80}: read it by map(ad.read_file)"
        )
    return bytes(contents)


@cache
def decoder_name() -> str:
    """Return the package that decodes JPEG: the first one that is installed."""
    return next((name for name in DECODERS if is_installed(name)), "PIL")


def is_installed(name: str) -> bool:
    """Return whether a package is there, in a version that decodes pictures without a warning."""
    if not find_spec(name):
        return False
    least, below = VERSIONS.get(name, ((), (1 << 30,)))
    numbers = tuple(int(part) for part in metadata.version(name).split(".")[:2]) if name in VERSIONS else ()
    return least <= numbers < below


class JpegFrame(NamedTuple):
    """What the header of a JPEG file says of its pixels."""

    bits: int
    """The bits of a value."""
    components: int
    """How many values a pixel has."""
    is_rgb: bool
    """Whether three values are red, green and blue, and not a brightness and two colours."""


def jpeg_frame(data: bytes) -> JpegFrame | None:
    """Return what a JPEG file says of its pixels, `None` for other files."""
    at, is_rgb = 2, False
    while data[:3] == b"\xff\xd8\xff" and at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAMES:
            count = data[at + 9]
            return JpegFrame(data[at + 4], count, is_rgb or data[at + 10 : at + 10 + 3 * count : 3] == b"RGB")
        is_rgb |= marker == ADOBE and data[at + 4 : at + 9] == b"Adobe" and data[at + 15 : at + 16] == b"\0"
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def jpeg_components(data: bytes) -> int:
    """Return how many values a pixel of a JPEG file has, 0 for other files."""
    frame = jpeg_frame(data)
    return 0 if frame is None else frame.components


def by_simplejpeg(data: bytes, channels: int) -> Pixels:
    simplejpeg: Any = require("simplejpeg", "decode_image", "simplejpeg")
    return simplejpeg.decode_jpeg(data, colorspace="RGB" if channels == RGB else "GRAY")


def by_torchcodec(data: bytes, channels: int) -> Pixels:
    torch: Any = require("torch", "decode_image", "torch")
    decoders: Any = require("torchcodec.decoders", "decode_image", "torchcodec")
    source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    found = decoders.decode_jpeg(source, mode="RGB" if channels == RGB else "GRAY")
    return np.ascontiguousarray(found.permute(1, 2, 0).numpy())


def by_torchvision(data: bytes, channels: int) -> Pixels:
    torch: Any = require("torch", "decode_image", "torch")
    images: Any = require("torchvision.io", "decode_image", "torchvision")
    mode = images.ImageReadMode.RGB if channels == RGB else images.ImageReadMode.GRAY
    found = images.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode)
    return np.ascontiguousarray(found.permute(1, 2, 0).numpy())


def by_pillow(data: bytes, channels: int) -> Pixels:
    image: Any = require("PIL.Image", "decode_image", "pillow")
    colours = "RGB" if channels == RGB else "L"
    try:
        with image.open(io.BytesIO(data)) as found:
            deep = any(map(is_deep, found.tile))
            if found.mode not in MODES or deep:
                kind = f"{found.mode}{', stored with more' if deep else ''}"
                raise StructureError(f"decode_image: pictures of 8 bits per value are decoded, got the mode {kind}")
            found.draft(colours, found.size)  # grey is what a JPEG file stores, not computed from RGB
            pixels = np.array(found.convert(colours))
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        if isinstance(error, StructureError):
            raise
        why = f"they begin with {data[:8]!r}" if isinstance(error, image.UnidentifiedImageError) else str(error)
        raise DataLossError(f"decode_image: {len(data)} bytes are no picture: {why}") from None
    return pixels.reshape(*pixels.shape[:2], channels)


def is_deep(tile: Any) -> bool:
    """Return whether this part of a picture has values of more than 8 bits, of which Pillow gives 8 in colour."""
    codec, _, _, stored = tile
    largest = cast("Any", stored)[-1] if codec.startswith("ppm") and isinstance(stored, tuple) else None
    return DEEP.search(str(cast("Any", stored))) is not None or (largest or 0) > 0xFF  # a PBM file names none


def by_opencv(data: bytes, channels: int) -> Pixels:
    cv2: Any = require("cv2", "decode_image", "opencv-python-headless")
    if not data.rstrip(b"\0").endswith(b"\xff\xd9"):
        raise ValueError("it is cut short")  # for which OpenCV may give a part of the picture
    mode = cv2.IMREAD_COLOR if channels == RGB else cv2.IMREAD_GRAYSCALE
    found = cv2.imdecode(np.frombuffer(data, np.uint8), mode | cv2.IMREAD_IGNORE_ORIENTATION)
    if found is None:
        raise ValueError("it is damaged")
    return np.ascontiguousarray(found[:, :, ::-1]) if channels == RGB else found[:, :, None]


DECODERS: Final[dict[str, Decoder]] = {
    "simplejpeg": by_simplejpeg,
    "torchcodec": by_torchcodec,
    "torchvision": by_torchvision,
    "PIL": by_pillow,
    "cv2": by_opencv,
}
"""What decodes JPEG, by the module that is needed, the best first."""
