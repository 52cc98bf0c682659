"""Encodes elements as bytes: arrays, numbers, strings and structures of them. Decoding never runs code from the data.

An element is a tag and its content, little-endian; structures contain elements:

    -  None        t f  bools         i  int64          j  any int       d  float64     c  complex128
    b  bytes       y  bytearray       s  str in UTF-8   l  list          u  tuple       m  dict
    a  array       g  NumPy scalar    o  array of objects                n  named tuple k  dataclass
    r  Ragged      p  tensor of PyTorch: an array, and the name of a dtype that NumPy does not have
    h  np.bytes_   w  np.str_ (as NumPy scalars of their dtypes they would lose zeros at their end)

The data of an array begins at a multiple of 16 bytes and is not copied when it is read: the array is read-only. Named
tuples and dataclasses are identified by module and name. Decoding looks the class up in the imported modules, imports
none, and calls none of its methods.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import sys
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from asyncdata.elements.columns import is_of_numpy
from asyncdata.elements.ragged import Ragged
from asyncdata.elements.tensors import array_and_dtype, from_array_and_dtype, has_gradient, is_tensor
from asyncdata.elements.tree import attributes
from asyncdata.errors import DataLossError, StructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("ElementReader", "decode_element", "encode_element")

ALIGNMENT: Final = 16

MOST_EMPTY: Final = 1 << 20
"""An array may have so many items of no bytes (`S0`, `U0`, `V0`), which later steps would give a size."""

LARGE: Final = 1 << 16
"""Arrays of fewer bytes are copied once more, which is faster than a view of their bytes."""

pack_size = struct.Struct("<I").pack
unpack_size = struct.Struct("<I").unpack_from
pack_length = struct.Struct("<Q").pack
unpack_length = struct.Struct("<Q").unpack_from
pack_int = struct.Struct("<cq").pack
unpack_int = struct.Struct("<q").unpack_from
pack_float = struct.Struct("<cd").pack
unpack_float = struct.Struct("<d").unpack_from
pack_complex = struct.Struct("<cdd").pack
unpack_complex = struct.Struct("<dd").unpack_from


def encode_element(value: Any) -> bytes:
    """Return an element as bytes; `StructureError` for a value that cannot be written.

    >>> decode_element(encode_element({"x": (1, None), "name": b"a"}))
    {'x': (1, None), 'name': b'a'}
    """
    writer = ElementWriter()
    try:
        writer.add(value)
    except RecursionError:
        raise StructureError(
            f"cannot be written to a file: a {type(value).__name__} that contains itself, or is nested too deeply"
        ) from None
    return b"".join(writer.parts)


def decode_element(data: bytes) -> Any:
    """Return the element that `encode_element` encoded; `DataLossError` for other bytes."""
    reader = ElementReader(data)
    try:
        value = reader.take()
    except (struct.error, IndexError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        if isinstance(error, (DataLossError, StructureError)):
            raise
        raise DataLossError(f"not an element: {len(data)} bytes that cannot be decoded: {error}") from error
    if reader.at != len(data):
        raise DataLossError(f"not an element: it ends at byte {reader.at} of {len(data)}")
    return value


class ElementWriter:
    """Gathers the parts of an element's bytes."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.size = 0

    def put(self, part: bytes | memoryview) -> None:
        self.parts.append(part)
        self.size += len(part)

    def add(self, value: Any) -> None:
        """Append an element."""
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        write = WRITERS.get(kind)
        if write is not None:
            write(self, value)
        else:
            self.other(value)

    def flag(self, value: bool | None) -> None:
        self.put(b"-" if value is None else b"t" if value else b"f")

    def integer(self, value: int) -> None:
        if -(1 << 63) <= value < 1 << 63:
            self.put(pack_int(b"i", value))
        else:
            self.bulk(b"j", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def number(self, value: float) -> None:
        self.put(pack_float(b"d", value))

    def complex_number(self, value: complex) -> None:
        self.put(pack_complex(b"c", value.real, value.imag))

    def bulk(self, tag: bytes, data: bytes | memoryview) -> None:
        self.put(tag + pack_length(len(data)))
        self.put(data)

    def octets(self, value: bytes | bytearray) -> None:
        self.bulk(b"b" if isinstance(value, bytes) else b"y", bytes(value))

    def text(self, value: str) -> None:
        self.bulk(b"s", value.encode("utf-8", "surrogatepass"))

    def character(self, value: np.bytes_ | np.str_) -> None:
        if isinstance(value, np.bytes_):
            self.bulk(b"h", bytes(value))
        else:
            self.bulk(b"w", value.encode("utf-8", "surrogatepass"))

    def sequence(self, value: list[Any] | tuple[Any, ...]) -> None:
        self.put((b"l" if isinstance(value, list) else b"u") + pack_size(len(value)))
        for part in value:
            self.add(part)

    def mapping(self, value: dict[Any, Any]) -> None:
        self.put(b"m" + pack_size(len(value)))
        for key, part in value.items():
            self.add(key)
            self.add(part)

    def array(self, value: Any, tag: bytes = b"a") -> None:
        if value.dtype == object:
            self.put(b"o" + encoded_shape(value.shape))
            for part in value.ravel().tolist():
                self.add(part)
            return
        if value.dtype.metadata is not None:
            raise StructureError(
                f"cannot be written to a file: the metadata of dtype {value.dtype}; remove it in a map"
            )
        if not value.dtype.itemsize and value.size > MOST_EMPTY:
            raise StructureError(f"cannot be written to a file: {value.size} items of {value.dtype}, without a size")
        self.put(array_head(tag, value.dtype, value.shape, self.size % ALIGNMENT))
        if value.nbytes >= LARGE:
            self.put(memoryview(cast("Any", np.ascontiguousarray(value).reshape(-1).view(np.uint8))))
        elif value.nbytes:
            self.put(value.tobytes())

    def other(self, value: Any) -> None:
        """Append a value of a type that is not in the table of writers."""
        kind = cast("type[Any]", type(value))
        if kind is Ragged:
            self.put(b"r")
            self.array(value.values)
            self.array(value.row_splits)
        elif is_tensor(value) and is_plain_tensor(kind):
            array, name = array_and_dtype(value)
            self.put(b"q" if has_gradient(value) else b"p")
            self.array(array)
            self.text(name)
        elif is_of_numpy(kind) and not isinstance(value, np.void):
            self.array(np.asarray(value), b"g")
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            parts = cast("tuple[Any, ...]", value)
            check_attributes(parts, kind._fields)
            self.named(b"n", kind, dict(zip(kind._fields, parts, strict=True)))
        elif dataclasses.is_dataclass(cast("Any", value)) and is_plain_class(kind):
            instance = cast("Any", value)
            names = [field.name for field in dataclasses.fields(instance)]
            check_attributes(instance, names)
            self.named(b"k", kind, {name: getattr(instance, name) for name in names})
        else:
            raise StructureError(
                f"cannot be written to a file: {kind.__module__}.{kind.__qualname__}, got {value!r:.80}; elements in "
                "files are arrays, numbers, bytes, str, None and tuples, dicts, lists, named tuples and dataclasses of "
                "them: convert it in a map"
            )

    def named(self, tag: bytes, kind: type, parts: dict[str, Any]) -> None:
        if find_class(kind.__module__, kind.__qualname__) is not kind:
            raise StructureError(
                f"cannot be written to a file: {kind.__qualname__} is not a class that module {kind.__module__} has by "
                "that name; define it at the top of a module"
            )
        self.put(tag)
        for word in (kind.__module__, kind.__qualname__):
            self.text(word)
        self.mapping(parts)


def is_plain_tensor(kind: type[Any]) -> bool:
    """Return whether a class of tensors has no data of its own, as those of torchvision.tv_tensors have."""
    return kind.__module__.partition(".")[0] == "torch" and kind.__name__ in {"Tensor", "Parameter", "Buffer"}


@lru_cache
def is_plain_class(kind: type[Any]) -> bool:
    """Return whether an object can be made without its class: not one that is a dict or the like too."""
    return kind.__new__ is object.__new__ or not issubclass(kind, (dict, list, tuple, set, str, bytes, BaseException))


def check_attributes(value: Any, fields: Sequence[str]) -> None:
    """Raise `StructureError` if an object has attributes that are no fields, or lacks a field."""
    own: Any = getattr(value, "__dict__", ())
    if [*own] == [*fields] or (not own and isinstance(value, tuple)):
        return
    found = attributes(value)
    if odd := [name for name in found if name not in fields] + [name for name in fields if not hasattr(value, name)]:
        raise StructureError(
            f"cannot be written to a file: {type(value).__qualname__} has fields {[*fields]}, and this one differs in "
            f"the attributes {odd}: make them fields, or convert it in a map"
        )


WRITERS: Final[dict[type, Callable[[ElementWriter, Any], None]]] = {
    **dict.fromkeys((type(None), bool), ElementWriter.flag),
    **dict.fromkeys((bytes, bytearray), ElementWriter.octets),
    **dict.fromkeys((list, tuple), ElementWriter.sequence),
    **dict.fromkeys((np.bytes_, np.str_), ElementWriter.character),
    **dict.fromkeys((np.ndarray, np.memmap), ElementWriter.array),
    int: ElementWriter.integer,
    float: ElementWriter.number,
    complex: ElementWriter.complex_number,
    str: ElementWriter.text,
    dict: ElementWriter.mapping,
}


class ElementReader:
    """Decodes elements from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self) -> Any:
        """Return the next element."""
        tag = self.data[self.at]
        self.at += 1
        return READERS[tag](self)

    def number(self, unpack: Callable[[bytes, int], tuple[Any, ...]], size: int) -> tuple[Any, ...]:
        values = unpack(self.data, self.at)
        self.at += size
        return values

    def size(self) -> int:
        return self.number(unpack_size, 4)[0]

    def length(self) -> int:
        return self.number(unpack_length, 8)[0]

    def span(self, length: int) -> bytes:
        part = self.data[self.at : self.at + length]
        if len(part) < length:
            raise ValueError("it is cut short")
        self.at += length
        return part

    def bulk(self) -> bytes:
        return self.span(self.length())

    def text(self) -> str:
        return self.bulk().decode("utf-8", "surrogatepass")

    def parts(self) -> list[Any]:
        return [self.take() for _ in range(self.size())]

    def mapping(self) -> dict[Any, Any]:
        return {self.take(): self.take() for _ in range(self.size())}

    def shape(self) -> tuple[int, ...]:
        return tuple([self.length() for _ in range(self.size())])

    def array(self) -> Any:
        shape, dtype = self.shape(), dtype_of(self.span(self.size()))
        self.at += -self.at % ALIGNMENT
        if 0 in shape or not dtype.itemsize:
            return empty(shape, dtype)
        array = np.ndarray(shape, dtype, self.data, self.at)
        self.at += array.nbytes
        return array

    def objects(self) -> Any:
        shape = self.shape()
        count = prod(shape)
        if count > len(self.data):
            raise ValueError("it has more elements than bytes")
        array = np.empty(count, object)
        for place in range(count):
            array[place] = self.take()
        return array.reshape(shape)

    def kind(self) -> Any:
        module, name = self.take(), self.take()
        if type(module) is not str or type(name) is not str:
            raise ValueError("a class needs its module and its name")
        kind = find_class(module, name)
        if kind is None:
            raise StructureError(f"the element is a {module}.{name}, which is not imported here: import {module} first")
        return kind

    def fields(self) -> dict[str, Any]:
        parts = self.take()
        if type(parts) is not dict:
            raise ValueError("a class needs its fields")
        return cast("dict[str, Any]", parts)

    def tensor(self, gradient: bool = False) -> Any:
        array, name = self.take(), self.take()
        if not isinstance(array, np.ndarray) or type(name) is not str:
            raise ValueError("a tensor needs an array and the name of a dtype")
        try:
            return from_array_and_dtype(cast("Any", array).copy(), name, gradient)  # which is never read-only
        except RuntimeError as error:
            raise ValueError(f"not a tensor: {error}") from None

    def named_tuple(self) -> Any:
        kind, parts = self.kind(), self.fields()
        names: Any = stored_in(kind, "_fields")
        if not issubclass(kind, tuple) or not isinstance(names, tuple):
            raise TypeError(f"{kind.__qualname__} is not a named tuple")
        make: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return make(kind, checked(kind, cast("tuple[str, ...]", names), parts).values())

    def record(self) -> Any:
        kind, parts = self.kind(), self.fields()
        if not isinstance(stored_in(kind, "__dataclass_fields__"), dict):
            raise TypeError(f"{kind.__qualname__} is not a dataclass")
        names = [field.name for field in dataclasses.fields(kind)]
        named = checked(kind, names, parts)
        value: Any = object.__new__(kind)
        for name, part in named.items():
            object.__setattr__(value, name, part)
        return value


def stored_in(kind: type, name: str) -> Any:
    """Return an attribute of a class as it is stored, `None` if there is none. No `__getattr__` runs."""
    return next((vars(base)[name] for base in type.mro(kind) if name in vars(base)), None)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return an array that needs no bytes."""
    if (count := prod(shape)) > MOST_EMPTY:
        raise ValueError(f"it has {count} items without a size, and may have {MOST_EMPTY}")
    return np.ndarray(shape, dtype, b"")


def checked(kind: Any, names: Sequence[str], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an element; raise unless they have the names of the class's fields."""
    if [*parts] != [*names]:
        raise StructureError(f"{kind.__qualname__} has fields {[*names]}, the element that was written {[*parts]}")
    return parts


READERS: Final[dict[int, Callable[[ElementReader], Any]]] = {
    ord("-"): lambda _: None,
    ord("t"): lambda _: True,
    ord("f"): lambda _: False,
    ord("i"): lambda reader: reader.number(unpack_int, 8)[0],
    ord("j"): lambda reader: int.from_bytes(reader.bulk(), "little", signed=True),
    ord("d"): lambda reader: reader.number(unpack_float, 8)[0],
    ord("c"): lambda reader: complex(*reader.number(unpack_complex, 16)),
    ord("b"): ElementReader.bulk,
    ord("h"): lambda reader: np.bytes_(reader.bulk()),
    ord("w"): lambda reader: np.str_(reader.text()),
    ord("y"): lambda reader: bytearray(reader.bulk()),
    ord("s"): ElementReader.text,
    ord("l"): ElementReader.parts,
    ord("u"): lambda reader: tuple(reader.parts()),
    ord("m"): ElementReader.mapping,
    ord("a"): ElementReader.array,
    ord("g"): lambda reader: reader.array()[()],
    ord("o"): ElementReader.objects,
    ord("n"): ElementReader.named_tuple,
    ord("k"): ElementReader.record,
    ord("p"): ElementReader.tensor,
    ord("q"): lambda reader: reader.tensor(gradient=True),
    ord("r"): lambda reader: Ragged(reader.take(), reader.take()),
}


def encoded_shape(shape: tuple[int, ...]) -> bytes:
    return pack_size(len(shape)) + b"".join(map(pack_length, shape))


@lru_cache
def array_head(tag: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], at: int) -> bytes:
    """Return the header of an array that begins at byte `at`, padded so that the data is aligned."""
    kind = encoded_dtype(dtype)
    head = tag + encoded_shape(shape) + pack_size(len(kind)) + kind
    return head + bytes(-(at + len(head)) % ALIGNMENT)


@lru_cache
def encoded_dtype(dtype: np.dtype[Any]) -> bytes:
    """Return a dtype as JSON; `StructureError` for a dtype that NumPy's file format does not support."""
    encoded = None if dtype.hasobject else json.dumps(np.lib.format.dtype_to_descr(dtype)).encode()
    try:
        same = encoded is not None and dtype_of(encoded) == dtype
    except (TypeError, ValueError):  # of fields with titles, and of ml_dtypes
        same = False
    if encoded is None or not same:
        raise StructureError(f"cannot be written to a file: an array of dtype {dtype}; convert it with astype in a map")
    return encoded


@lru_cache
def dtype_of(encoded: bytes) -> np.dtype[Any]:
    """Return the dtype that `encoded_dtype` encoded."""

    def descr(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        fields = cast("list[list[Any]]", part)
        return [(name, descr(kind), *map(tuple, shape)) for name, kind, *shape in fields]

    dtype = np.lib.format.descr_to_dtype(descr(json.loads(encoded)))
    if dtype.hasobject:
        raise ValueError("objects are written one by one")
    return dtype


def find_class(module: str, name: str) -> type | None:
    """Return the class of this name in an imported module; `None` if there is none. No `__getattr__` runs."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        base: Any = type if isinstance(value, type) else ModuleType
        if not isinstance(value, base):
            return None
        value = base.__getattribute__(value, "__dict__").get(part)
    return value if isinstance(value, type) else None
