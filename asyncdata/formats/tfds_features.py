"""The features of TensorFlow Datasets: how a tf.Example becomes a sample, by their description."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError
from asyncdata.formats.tf_example import decode_feature, read_features

__all__ = ("ExampleDecoder", "class_labels", "feature_of")

Feature: TypeAlias = Callable[[Any], Any]
"""Takes the features of a tf.Example by name, and returns a value of a sample."""

Shape: TypeAlias = tuple[int | None, ...]

STRING: Final = np.dtype(object)


@dataclass(frozen=True)
class ExampleDecoder:
    """Makes samples of serialized tf.Examples."""

    feature: Feature

    def __call__(self, record: bytes) -> Any:
        """Return the sample in a record; `DataLossError` if it has other features than the description says."""
        found = read_features(record)
        try:
            return self.feature(found)
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            raise DataLossError(f"a tf.Example does not fit features.json: {error}") from None


@dataclass(frozen=True)
class Group:
    """Features by name."""

    parts: Mapping[str, Feature]

    def __call__(self, found: Any) -> dict[str, Any]:
        return {name: part(found) for name, part in self.parts.items()}


@dataclass(frozen=True)
class Leaf:
    """An array, a scalar or a `bytes`; lists of arrays for sequences of sequences."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    depth: int
    """How many of the axes are those of sequences."""

    def __call__(self, found: Any) -> Any:
        ragged = f"{self.name}/ragged_flat_values"
        if ragged in found:
            return self.nested(found, self.values(found[ragged], ragged))
        values = self.values(found[self.name], self.name)
        if not self.shape:
            (value,) = values
            return value
        return self.reshaped(values, self.shape)

    def values(self, message: Any, name: str) -> npt.NDArray[Any]:
        """Return the values of a feature, of the dtype of this one."""
        values = decode_feature(message)
        if not len(values):
            return np.empty(0, self.dtype)
        kinds = {"O": "O", "f": "f"}
        if kinds.get(values.dtype.kind, "iub") != kinds.get(self.dtype.kind, "iub"):
            raise ValueError(f"feature {name!r}: {self.dtype} is expected, got {values.dtype}")
        return values.astype(self.dtype)

    def reshaped(self, values: npt.NDArray[Any], shape: Shape) -> npt.NDArray[Any]:
        """Return values in a shape with at most one unknown axis."""
        known = prod(size for size in shape if size is not None)
        unknown = shape.count(None)
        count = len(values) // known if known else 0
        if unknown > 1 or known * (count if unknown else 1) != len(values):
            raise ValueError(f"feature {self.name!r}: the shape {shape} is expected, got {len(values)} values")
        return values.reshape([count if size is None else size for size in shape])

    def nested(self, found: Any, values: npt.NDArray[Any]) -> Any:
        """Return lists of arrays, whose lengths are in features of their own."""
        parts: Any = self.reshaped(values, (None, *self.shape[self.depth :]))
        for level in reversed(range(self.depth - 1)):
            lengths = decode_feature(found[f"{self.name}/ragged_row_lengths_{level}"]).tolist()
            if sum(lengths) != len(parts):
                raise ValueError(f"feature {self.name!r}: rows of {sum(lengths)} values are expected, got {len(parts)}")
            ends = np.cumsum([0, *lengths], dtype=np.int64).tolist()
            parts = [parts[begin:end] for begin, end in pairwise(ends)]
        return parts


@dataclass(frozen=True)
class Packed:
    """An array whose bytes are stored, compressed or not; of a sequence a list of arrays."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    outer: Shape
    compressed: bool

    def __call__(self, found: Any) -> Any:
        shape = self.shape
        if shape.count(None) > 1:
            shape = tuple(decode_feature(found[f"{self.name}/shape"]).tolist())
        name = self.name if shape is self.shape else f"{self.name}/value"
        arrays = [self.array(data, shape) for data in cast("list[bytes]", decode_feature(found[name]).tolist())]
        if self.outer:
            return np.stack(arrays) if arrays and None not in self.shape else arrays
        (array,) = arrays
        return array

    def array(self, data: bytes, shape: Shape) -> npt.NDArray[Any]:
        """Return an array that may be changed."""
        plain = zlib.decompress(data) if self.compressed else data
        return np.frombuffer(bytearray(plain), self.dtype).reshape([-1 if size is None else size for size in shape])


def feature_of(spec: Mapping[str, Any], name: str = "", outer: Shape = ()) -> Feature:
    """Return what a description says; `ValueError` for kinds that are not supported. `outer` are the lengths of the
    sequences that the feature is in."""
    if (group := spec.get("featuresDict")) is not None:
        parts = group.get("features", {})
        return Group({key: feature_of(part, f"{name}/{key}" if name else key, outer) for key, part in parts.items()})
    if (sequence := spec.get("sequence")) is not None:
        length = int(sequence.get("length", -1))
        return feature_of(sequence["feature"], name, (*outer, None if length < 0 else length))
    for kind, make in KINDS.items():
        if (found := spec.get(kind)) is not None:
            return make(found, name, outer)
    kind = str(spec.get("pythonClassName", "")).rpartition(".")[2]
    raise ValueError(f"feature {name!r} is of the kind {kind or [*spec]!r}, which is not supported")


def leaf(name: str, dtype: str, shape: Shape, outer: Shape) -> Leaf:
    kind = STRING if dtype in ("string", "object") else np.dtype(dtype)
    if kind.kind not in "biufO":
        raise ValueError(f"feature {name!r} is of the dtype {dtype!r}, which is not supported")
    return Leaf(name, kind, (*outer, *shape), len(outer))


def shape_of(spec: Mapping[str, Any]) -> Shape:
    """Return a shape, in which axes of an unknown length are `None`."""
    sizes = [int(size) for size in spec.get("shape", {}).get("dimensions", [])]
    return tuple([None if size < 0 else size for size in sizes])


def tensor(spec: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    encoding, shape = str(spec.get("encoding", "none")).lower(), shape_of(spec)
    if encoding not in ("none", "bytes", "zlib"):
        raise ValueError(f"feature {name!r} has the encoding {encoding!r}, which is not supported")
    if spec.get("optional"):
        raise ValueError(f"feature {name!r} is optional, which is not supported")
    plain = leaf(name, str(spec["dtype"]), shape, outer)
    if encoding == "none":
        return plain
    if len(outer) > 1 or (outer and shape.count(None) > 1):
        raise ValueError(f"feature {name!r}: sequences of encoded tensors of unknown shapes are not supported")
    return Packed(name, plain.dtype, shape, outer, encoding == "zlib")


def audio(spec: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    return encoded(spec, name, outer) if spec.get("lazyDecode") else tensor(spec, name, outer)


def encoded(_: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    """A file, which is not decoded, or a text."""
    return leaf(name, "string", (), outer)


def label(_: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    return leaf(name, "int64", (), outer)


def box(_: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    return leaf(name, "float32", (4,), outer)


def video(_: Mapping[str, Any], name: str, outer: Shape) -> Feature:
    """The encoded pictures of a video."""
    return leaf(name, "string", (), (*outer, None))


KINDS: Final[dict[str, Callable[[Mapping[str, Any], str, Shape], Feature]]] = {
    "tensor": tensor,
    "text": encoded,
    "image": encoded,
    "classLabel": label,
    "boundingBox": box,
    "audio": audio,
    "video": video,
}


def class_labels(spec: Mapping[str, Any], name: str = "") -> Sequence[str]:
    """Return the names of the features that are labels of classes."""
    if "classLabel" in spec:
        return [name]
    if (sequence := spec.get("sequence")) is not None:
        return class_labels(sequence["feature"], name)
    parts: Mapping[str, Any] = spec.get("featuresDict", {}).get("features", {})
    return [found for key, part in parts.items() for found in class_labels(part, f"{name}/{key}" if name else key)]
