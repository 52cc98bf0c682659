"""EncodedPictures: pictures of an element that are decoded on their way to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from asyncdata.devices.base import Device
from asyncdata.errors import StructureError
from asyncdata.formats.images import decode_image, jpeg_frame

__all__ = ("EncodedPictures", "decoded_together", "is_encoded")

END_OF_JPEG: Final = b"\xff\xd9"


def is_encoded(leaf: Any) -> bool:
    """Return whether a leaf is the bytes of a file, or an array of such."""
    if type(leaf) is np.ndarray:
        return leaf.dtype.kind in "OS" and any(isinstance(one, bytes) for one in leaf.flat)
    return isinstance(leaf, bytes)


class EncodedPictures:
    """The pictures among the leaves of an element, decoded by the device, or on the host for those that it leaves."""

    def __init__(self, device: Device, leaves: Sequence[Any], paths: Sequence[str]) -> None:
        self.shapes = [np.shape(leaf) if is_encoded(leaf) else None for leaf in leaves]
        """The shape of each leaf that holds pictures, `None` for other leaves."""
        pairs = [(leaf, path) for leaf, path in zip(leaves, paths, strict=True) if is_encoded(leaf)]
        named = [pair for leaf, path in pairs for pair in files_of(leaf, path)]
        self.decoded = device.decode([file for file, _ in named])
        """The pictures that the device has decoded; `None` for others."""
        plain = [leaf for leaf, shape in zip(leaves, self.shapes, strict=True) if shape is None]
        rest = [each for each, found in zip(named, self.decoded, strict=True) if found is None]
        self.leaves = [*plain, *(decoded_here(file, name) for file, name in rest)]
        """What is copied to the device: the other leaves, and the pictures that were decoded on the host."""

    def on_device(self) -> list[Any]:
        """Return the arrays that the device has made."""
        return [picture for picture in self.decoded if picture is not None]

    def joined(self, copies: Sequence[Any]) -> list[Any]:
        """Return the leaves on the device, given the copies: pictures of an array are a list of arrays."""
        count = self.shapes.count(None)
        plain, copied = iter(copies[:count]), iter(copies[count:])
        pictures = iter([next(copied) if picture is None else picture for picture in self.decoded])
        return [next(plain) if shape is None else nested(shape, pictures) for shape in self.shapes]


def files_of(leaf: Any, path: str) -> Iterator[tuple[bytes, str]]:
    """Yield the files of a leaf, and what they are called in errors."""
    for number, file in enumerate(np.ravel(leaf).tolist()):
        name = f"picture {number} of {path}" if path else f"picture {number}"
        if not isinstance(file, bytes):
            raise StructureError(f"{name} is {file!r:.80}, and not bytes")
        yield file, name


def decoded_here(file: bytes, name: str) -> Any:
    """Return a picture as an array of (3, height, width), decoded on the host."""
    try:
        return np.ascontiguousarray(decode_image(file).transpose(2, 0, 1))
    except Exception as error:
        error.add_note(name)
        raise


def nested(shape: Sequence[int], pictures: Iterator[Any]) -> Any:
    """Return the next pictures as a list of so many, or of lists; one for no axis."""
    return [nested(shape[1:], pictures) for _ in range(shape[0])] if shape else next(pictures)


def decoded_together(decode: Callable[[list[bytes]], Sequence[Any]], files: Sequence[bytes]) -> list[Any]:
    """Return the pictures that `decode` makes of JPEG files, all at once; `None` for those that it cannot decode.

    A `RuntimeError` of many is one of some of them, which are found by decoding each by itself.
    """
    found: list[Any] = [None] * len(files)
    places = [place for place, file in enumerate(files) if is_usual(file)]
    try:
        made = decode([files[place] for place in places]) if places else ()
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # as one that says that the device has no memory left
            raise
        made = [alone(decode, files[place]) for place in places]
    for place, picture in zip(places, made, strict=True):
        found[place] = picture
    return found


def alone(decode: Callable[[list[bytes]], Sequence[Any]], file: bytes) -> Any:
    """Return a picture, or `None` if it cannot be decoded."""
    try:
        return decode([file])[0]
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        return None


def is_usual(file: bytes) -> bool:
    """Return whether all decoders make the same of a JPEG file: it is whole, of 8 bits, and grey or YCbCr."""
    frame = jpeg_frame(file)
    is_known = frame is not None and frame.bits == 8 and frame.components in (1, 3) and not frame.is_rgb
    return is_known and file.rstrip(b"\0").endswith(END_OF_JPEG)
