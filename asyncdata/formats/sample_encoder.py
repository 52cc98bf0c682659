"""SampleEncoder: writes samples as members of a tar archive in WebDataset's format, without I/O."""

from __future__ import annotations

import io
import operator
import tarfile
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.validation import check_unmasked
from asyncdata.errors import StructureError
from asyncdata.formats.json_values import json_bytes
from asyncdata.formats.sample_decoders import INTEGERS, JSON, TEXTS
from asyncdata.formats.tar import BLOCK, padded
from asyncdata.formats.webdataset import KEY, KeysSeen, key_of

__all__ = ("SampleEncoder",)


class SampleEncoder:
    """Encodes samples as members of one archive; `before` samples are in earlier archives.

    >>> archive = SampleEncoder()
    >>> data = archive.add({"__key__": "a", "cls": 3}) + archive.finish()
    >>> len(data), data[:5], data[512:513]
    (2048, b'a.cls', b'3')
    """

    def __init__(self, before: int = 0) -> None:
        self._number = before
        self._key = ""
        self._seen = KeysSeen()

    def add(self, element: Any) -> bytes:
        """Return the members of a sample; `StructureError` for a sample that cannot be read back."""
        if not isinstance(element, Mapping):
            raise StructureError(
                f"write_webdataset needs samples: dicts of values by extension, such as {{'jpg': bytes, 'cls': int}}, "
                f"got {type(element).__name__}"
            )
        sample = cast("Mapping[Any, Any]", element)
        key = sample.get(KEY, f"{self._number:09}")
        if key == self._key:
            raise StructureError(f"write_webdataset: the previous sample also has the {KEY} {key!r}")
        members = [member(key, name, value) for name, value in sample.items() if not is_metadata(name)]
        if not members:
            raise StructureError(f"write_webdataset: the sample {key!r} has nothing but its key")
        names = frozenset(name for name in sample if not is_metadata(name))
        if self._seen.completes(key, names):
            raise StructureError(
                f"write_webdataset: an earlier sample also has the {KEY} {key!r}, with other members: they would be "
                "read as parts of one sample"
            )
        self._key = key
        self._number += 1
        return b"".join(members)

    def finish(self) -> bytes:
        """Return the end marker of an archive."""
        self._key = ""
        self._seen = KeysSeen()
        return bytes(2 * BLOCK)


def is_metadata(name: Any) -> bool:
    """Return whether a name is metadata of the sample, as `__key__` and `__url__`, and not an extension."""
    return isinstance(name, str) and name.startswith("__") and name.endswith("__")


def member(key: Any, extension: Any, value: Any) -> bytes:
    """Return one member with its header."""
    name = f"{key}.{extension}"
    if key_of(name) != (key, extension) or "\0" in name:
        raise StructureError(
            f"write_webdataset: {KEY} {key!r} and extension {extension!r} give the member name {name!r}, which "
            "cannot be read back: the last part of a key must have no dot, and an extension no capital and no slash"
        )
    content = encoded(extension, value)
    info = tarfile.TarInfo(name)
    info.size = len(content)
    header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return b"".join((header, content, bytes(padded(len(content)) - len(content))))


def encoded(extension: str, value: Any) -> bytes:
    """Return a value as bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    encode = next((ENCODERS[name] for name in (extension, extension.rpartition(".")[2]) if name in ENCODERS), None)
    if encode is None:
        raise StructureError(
            f"write_webdataset: a member .{extension} needs bytes, got {type(value).__name__}; values are "
            f"written as {', '.join(f'.{name}' for name in ENCODERS)}"
        )
    try:
        return encode(value)
    except (TypeError, ValueError) as error:
        raise StructureError(
            f"write_webdataset: {value!r:.80} cannot be written as a member .{extension}: {error}"
        ) from error


def text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a str is needed, got {type(value).__name__}")
    return value.encode()


def integer(value: Any) -> bytes:
    return b"%d" % operator.index(value)


def npy(value: Any) -> bytes:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"an array is needed, got {type(value).__name__}")
    check_unmasked(value, "the array")
    array: npt.NDArray[Any] = np.asarray(cast("Any", value))
    kind = array.dtype
    if not kind.hasobject and np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(kind)) != kind:
        raise TypeError(f"a dtype of another package, {kind}, would be lost: convert it with astype in a map")
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


ENCODERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    **dict.fromkeys(TEXTS, text),
    **dict.fromkeys(INTEGERS, integer),
    **dict.fromkeys(JSON, json_bytes),
    "npy": npy,
}
