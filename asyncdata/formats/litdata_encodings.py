"""The serializers of LitData: how the bytes of a leaf are decoded, and how leaves make a sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from struct import calcsize, unpack, unpack_from
from typing import Any, Final, TypeAlias

import numpy as np

from asyncdata.formats.mds_encodings import Decode, images_of, text_of, unpickled

__all__ = ("Build", "builder_of", "decoder_of")

Build: TypeAlias = Callable[[Iterator[Any]], Any]
"""Makes a sample, or a part of it, of the next leaves."""

NUMPY: Final = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
"""The dtypes of arrays by number; those of objects and strings follow, and are not read."""

TORCH: Final = (
    *("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128", "complex128"),
    *(
        "float16",
        "float16",
        "",
        "uint8",
        "int8",
        "int16",
        "int16",
        "int32",
        "int32",
        "int64",
        "int64",
        "bool",
        "uint16",
    ),
)
"""The dtypes of tensors by number; the one without a name is bfloat16."""


def dtype_of(names: tuple[str, ...], number: int) -> np.dtype[Any]:
    """Return the dtype that a number stands for; `ValueError` if it is none that NumPy has."""
    if number >= len(names) or not names[number]:
        raise ValueError(f"its dtype has the number {number}, which is not supported")
    return np.dtype(names[number]).newbyteorder("<")


def number_of(layout: str, data: memoryview) -> Any:
    return unpack(layout, data)[0]


def array_of(names: tuple[str, ...], order: str, data: memoryview) -> Any:
    """Return an array that may be changed, after its dtype, its number of axes and its shape."""
    number, axes = unpack_from(f"{order}II", data)
    shape = unpack_from(f"{order}{axes}I", data, 8)
    return flat_of(dtype_of(names, number), data[8 + 4 * axes :]).reshape(shape)


def flat_of(dtype: np.dtype[Any], data: memoryview) -> Any:
    return np.frombuffer(bytearray(data), dtype)


def json_of(view: memoryview) -> Any:
    """Return a nested value: JSON, or tagged values."""
    data = bytes(view)
    if not data or data[0] > 0x20:
        return json.loads(data.decode())
    value, end = tagged(data, 0)
    if end != len(data):
        raise ValueError(f"{end} bytes in {len(data)}")
    return value


def tagged(data: bytes, at: int) -> tuple[Any, int]:
    """Return the value at a byte, and where it ends; the first byte says what it is."""
    return TAGS[data[at]](data, at + 1)


def tagged_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = unpack_from("<I", data, at)
    end = at + 4 + size
    if end > len(data):
        raise ValueError(f"a text ends at byte {end} of {len(data)}")
    return data[at + 4 : end].decode(), end


def tagged_json(data: bytes, at: int) -> tuple[Any, int]:
    text, end = tagged_text(data, at)
    return json.loads(text), end


def tagged_number(layout: str, data: bytes, at: int) -> tuple[Any, int]:
    return unpack_from(layout, data, at)[0], at + calcsize(layout)


def tagged_numbers(dtype: str, data: bytes, at: int) -> tuple[Any, int]:
    (count,) = unpack_from("<I", data, at)
    return np.frombuffer(data, dtype, count, at + 4).tolist(), at + 4 + count * np.dtype(dtype).itemsize


def tagged_texts(data: bytes, at: int) -> tuple[Any, int]:
    (count,), at, found = unpack_from("<I", data, at), at + 4, list[str]()
    for _ in range(count):
        text, at = tagged_text(data, at)
        found.append(text)
    return found, at


def tagged_dict(data: bytes, at: int) -> tuple[Any, int]:
    (count,), at, found = unpack_from("<I", data, at), at + 4, dict[str, Any]()
    for _ in range(count):
        key, at = tagged_text(data, at)
        found[key], at = tagged(data, at)
    return found, at


def tagged_records(data: bytes, at: int) -> tuple[Any, int]:
    """Return dicts of the same keys, whose values are tagged by other numbers."""
    (count, width), at, keys = unpack_from("<II", data, at), at + 8, list[str]()
    if count > len(data):  # dicts without keys have no bytes
        raise ValueError(f"it has {count} dicts in {len(data)} bytes")
    for _ in range(width):
        key, at = tagged_text(data, at)
        keys.append(key)
    found: list[dict[str, Any]] = []
    for _ in range(count):
        row: dict[str, Any] = {}
        for key in keys:
            row[key], at = FIELDS[data[at]](data, at + 1)
        found.append(row)
    return found, at


def tagged_none(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def tagged_bool(data: bytes, at: int) -> tuple[bool, int]:
    return bool(data[at]), at + 1


TAGS: Final[dict[int, Callable[[bytes, int], tuple[Any, int]]]] = {
    0: tagged_json,
    1: tagged_texts,
    2: partial(tagged_numbers, "<i8"),
    3: partial(tagged_numbers, "<f8"),
    4: partial(tagged_numbers, "?"),
    5: tagged_dict,
    6: tagged_records,
    7: tagged_text,
    8: partial(tagged_number, "<q"),
    9: partial(tagged_number, "<d"),
    10: tagged_bool,
    11: tagged_none,
}

FIELDS: Final = dict(zip(range(0x10, 0x15), (tagged_none, tagged_text, TAGS[8], TAGS[9], tagged_bool), strict=True))

PLAIN: Final[dict[str, Decode]] = {
    **dict.fromkeys(("str", "text"), text_of),
    **dict.fromkeys(("bytes", "file", "jpeg", "pil", "image", "tiff", "tifffile", "video", "audio"), bytes),
    **dict.fromkeys(("nifti", "mesh", "pdf"), bytes),
    "bool": lambda data: data[0] != 0,
    "int": partial(number_of, "<q"),
    "float": partial(number_of, "<d"),
    "jpeg_array": partial(images_of, 0),
    "json": json_of,
    "numpy": partial(array_of, NUMPY, "<"),
    "tensor": partial(array_of, TORCH, ">"),
}
"""The decoders of serializers without arguments. Pictures and other files stay encoded."""


def decoder_of(name: str, allow_pickle: bool) -> Decode:
    """Return what decodes the leaves of a serializer; `ValueError` for unknown ones, and for pickles that are not
    allowed."""
    kind, _, rest = name.partition(":")
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in ("no_header_numpy", "no_header_tensor"):
        return partial(flat_of, dtype_of(TORCH if kind.endswith("tensor") else NUMPY, int(rest)))
    if kind != "pickle":
        raise ValueError(f"a leaf has the serializer {name!r:.40}, which is not supported")
    if not allow_pickle:
        raise ValueError(
            "a leaf is pickled, which can run any code when it is loaded; if you trust the files, read them with "
            "allow_pickle=True"
        )
    return unpickled


def next_leaf(leaves: Iterator[Any]) -> Any:
    return next(leaves)


def flat_dict(keys: list[Any], leaves: Iterator[Any]) -> dict[Any, Any]:
    """Return a dict of leaves, which are the next ones."""
    found = dict(zip(keys, leaves, strict=False))
    if len(found) < len(keys):
        raise StopIteration
    return found


def built_dict(keys: list[Any], parts: list[Build], leaves: Iterator[Any]) -> dict[Any, Any]:
    return {key: part(leaves) for key, part in zip(keys, parts, strict=True)}


def built_list(kind: Callable[[Any], Any], parts: list[Build], leaves: Iterator[Any]) -> Any:
    return kind([part(leaves) for part in parts])


def builder_of(spec: Any) -> Build:
    """Return what makes a sample of its leaves, by the specification in an index; `ValueError` for unknown kinds."""
    kind, parts = spec["type"], [builder_of(part) for part in spec["children_spec"]]
    if kind is None:
        return next_leaf
    if kind in ("builtins.dict", "collections.OrderedDict"):
        keys = json.loads(spec["context"])
        if len(keys) != len(parts):
            raise ValueError(f"{len(keys)} keys for {len(parts)} values")
        flat = keys and all(part is next_leaf for part in parts)
        return partial(flat_dict, keys) if flat else partial(built_dict, keys, parts)
    if kind in ("builtins.list", "builtins.tuple"):
        return partial(built_list, list if kind == "builtins.list" else tuple, parts)
    raise ValueError(f"its samples are of the type {kind!r:.60}, which is not supported")
