"""tf.Example: named lists of bytes, floats or integers, written and parsed with only the protobuf library."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from functools import cache
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import numpy as np

from asyncdata.elements.promotion import check_integers, unchanged
from asyncdata.elements.validation import check_dtype, check_unmasked
from asyncdata.errors import DataLossError, PlanError, StructureError
from asyncdata.system import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = (
    "FixedLenFeature",
    "VarLenFeature",
    "decode_example",
    "make_example",
    "parse_example",
    "parse_single_example",
)

Array: TypeAlias = "NDArray[Any]"
Value: TypeAlias = "Array | np.int64 | np.float32 | bytes"

KINDS: Final = ("bytes_list", "float_list", "int64_list")

KIND_OF: Final = {"b": "int64_list", "i": "int64_list", "u": "int64_list", "f": "float_list"}
"""The list that an array is written to, by the kind of its dtype, except bytes and strings."""

DTYPE_OF: Final[Mapping[str, np.dtype[Any]]] = {
    "bytes_list": np.dtype(object),
    "float_list": np.dtype(np.float32),
    "int64_list": np.dtype(np.int64),
}

SCALAR_OF: Final[Mapping[str, type[Any]]] = {"bytes_list": bytes, "float_list": np.float32, "int64_list": np.int64}

FEW: Final = 48
"""Up to this many values NumPy is faster taking one after another than calling protobuf's `__array__`."""

SPELLING: Final = {None: "nothing", "bytes_list": "bytes", "float_list": "float32", "int64_list": "int64"}

VALUES_OF: Final[Mapping[str, Callable[[Any], Sequence[Any]]]] = {kind: attrgetter(f"{kind}.value") for kind in KINDS}


class Feature(Protocol):
    """The specification of one feature."""

    def parse(self, name: str, found: Any) -> Value:
        """Return the value of the protobuf message `found`, which is the feature called `name`."""
        ...

    def stack(self, values: list[Any]) -> Array | list[Any]:
        """Stack the values of one feature in several examples."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """A feature of a known shape, as tf.io.FixedLenFeature; one of shape () is parsed to a scalar.

    `dtype` is `np.int64`, `np.float32`, or for bytes any of `bytes`, `str`, `object`. Without a `default_value` the
    feature must be in every example.

    >>> features = {"size": FixedLenFeature((2,), np.int64), "label": FixedLenFeature((), np.int64, default_value=-1)}
    >>> parse_single_example(make_example({"size": [4, 3]}), features)
    {'size': array([4, 3]), 'label': np.int64(-1)}
    """

    shape: Sequence[int]
    dtype: DTypeLike
    default_value: Any = None
    kind: str = field(init=False, repr=False)
    size: int = field(init=False, repr=False)
    values: Callable[[Any], Sequence[Any]] = field(init=False, repr=False, compare=False)
    scalar: type[Any] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape, kind = tuple(self.shape), kind_of_dtype(self.dtype)
        if not all(isinstance(size, int) and size >= 0 for size in shape):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"the shape of a FixedLenFeature must be known, got {shape}; see VarLenFeature")
        set_field = object.__setattr__  # the fields are frozen
        set_field(self, "shape", shape)
        set_field(self, "kind", kind)
        set_field(self, "size", prod(shape))
        set_field(self, "values", VALUES_OF[kind])
        set_field(self, "scalar", None if shape else SCALAR_OF[kind])
        if self.default_value is not None:
            set_field(self, "default_value", self._shaped_default())

    def parse(self, name: str, found: Any) -> Value:
        """Return the feature's value, or its default when the example has none."""
        values = self.values(found)
        if len(values) != self.size or not values:
            kind = found.WhichOneof("kind")
            if kind is None and self.default_value is not None:
                return self.default_value if self.scalar else self.default_value.copy()
            self._check(name, kind, len(values))
        if self.scalar:
            return self.scalar(values[0])
        return as_array(values, self.kind).reshape(self.shape)

    def stack(self, values: list[Any]) -> Array:
        """Return the values as one array with a leading dimension."""
        if self.scalar:
            return as_array(values, self.kind)
        stacked = np.empty((len(values), *self.shape), DTYPE_OF[self.kind])
        for i, value in enumerate(values):
            stacked[i] = value
        return stacked

    def _check(self, name: str, kind: str | None, size: int) -> None:
        expected = f"feature {name!r}: expected {SPELLING[self.kind]} of shape {self.shape}"
        if kind is None:
            raise StructureError(f"{expected}, but the example has no such feature, and there is no default_value")
        if kind != self.kind:
            raise StructureError(f"{expected}, got {SPELLING[kind]}")
        if size != self.size:
            raise StructureError(f"{expected}, that is {self.size} values, got {size}")

    def _shaped_default(self) -> Value:
        kind, values = flatten(self.default_value)
        fits = kind in {None, self.kind} or (kind, self.kind) == ("int64_list", "float_list")
        if len(values) != self.size or not fits:
            wanted = f"{self.size} values of {SPELLING[self.kind]}"
            raise PlanError(f"default_value must be {wanted} for shape {self.shape}, got {self.default_value!r}")
        return self.scalar(values[0]) if self.scalar else as_array(values, self.kind).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class VarLenFeature:
    """A feature of any length, as tf.io.VarLenFeature; it is parsed to a 1-D array, empty if the example has none.

    >>> examples = [make_example({"words": ["one", "two"]}), make_example({})]
    >>> [parse_single_example(one, {"words": VarLenFeature(bytes)})["words"].tolist() for one in examples]
    [[b'one', b'two'], []]
    """

    dtype: DTypeLike
    kind: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of_dtype(self.dtype))

    def parse(self, name: str, found: Any) -> Value:
        """Return the feature's values."""
        values = VALUES_OF[self.kind](found)
        kind = None if len(values) else found.WhichOneof("kind")
        if kind is not None and kind != self.kind:
            raise StructureError(f"feature {name!r}: expected {SPELLING[self.kind]}, got {SPELLING[kind]}")
        return as_array(values, self.kind)

    def stack(self, values: list[Any]) -> list[Any]:
        """Return the values as they are: their lengths differ."""
        return values


def make_example(features: Mapping[str, Any]) -> bytes:
    """Return a serialized tf.Example of `features`.

    A value is bytes, str, an int, a float, a bool, or a list or array of those. Floats are rounded to float32,
    arrays lose their shape, as tf.Example has only lists. A `StructureError` says what float32 cannot hold: a float
    beyond its range, an integer in a list of floats.

    >>> decode_example(make_example({"label": 3, "name": "ada", "weights": [0.5, 2.0]}))
    {'label': array([3]), 'name': array([b'ada'], dtype=object), 'weights': array([0.5, 2. ], dtype=float32)}
    """
    example = example_class()()
    example.features.SetInParent()
    target = example.features.feature
    for name, value in features.items():
        feature = target[name]
        try:
            kind, values = flatten(value)
            if kind is not None:
                getattr(feature, kind).SetInParent()
                VALUES_OF[kind](feature).extend(values)
        except (OverflowError, TypeError, UnicodeError, ValueError) as error:
            raise StructureError(f"feature {name!r}: {error}, got {reprlib.repr(value)}") from error
    return example.SerializeToString(deterministic=True)


def parse_single_example(serialized: bytes, features: Mapping[str, Feature]) -> dict[str, Value]:
    """Return the named `features` of one serialized tf.Example.

    >>> serialized = make_example({"label": 3, "weights": [0.5, 2.0]})
    >>> spec = {"label": FixedLenFeature((), np.int64), "weights": VarLenFeature(np.float32)}
    >>> parse_single_example(serialized, spec)
    {'label': np.int64(3), 'weights': array([0.5, 2. ], dtype=float32)}

    StructureError names a feature that is missing, of another kind or of another size; DataLossError means that
    `serialized` is not a tf.Example.
    """
    found = read_features(serialized)
    try:
        return {name: feature.parse(name, found[name]) for name, feature in features.items()}
    except AttributeError:
        for name, feature in features.items():
            if not hasattr(feature, "parse"):  # as those of tf.io
                kind = f"{type(feature).__module__}.{type(feature).__name__}"
                raise PlanError(
                    f"feature {name!r}: expected asyncdata's FixedLenFeature or VarLenFeature, got {kind}"
                ) from None
        raise


def parse_example(serialized: Sequence[bytes], features: Mapping[str, Feature]) -> dict[str, Array | list[Any]]:
    """Return the named `features` of a batch of serialized tf.Examples: arrays, or lists of arrays for VarLenFeature.

    >>> batch = [make_example({"label": label}) for label in range(3)]
    >>> parse_example(batch, {"label": FixedLenFeature((), np.int64)})
    {'label': array([0, 1, 2])}
    """
    rows = [parse_row(i, example, features) for i, example in enumerate(serialized)]
    return {name: feature.stack([row[name] for row in rows]) for name, feature in features.items()}


def parse_row(index: int, serialized: bytes, features: Mapping[str, Feature]) -> dict[str, Value]:
    """Parse the example at `index` of a batch; errors contain the index."""
    try:
        return parse_single_example(serialized, features)
    except (DataLossError, StructureError) as error:
        error.add_note(f"in example {index} of the batch")
        raise


def decode_example(serialized: bytes) -> dict[str, Array]:
    """Return every feature of a serialized tf.Example as a 1-D array: int64, float32, or object for bytes.

    A feature without a kind, as an empty list is written, is an empty float32 array.

    >>> decode_example(make_example({"id": 7, "tags": ["a", "b"], "none": []}))
    {'id': array([7]), 'none': array([], dtype=float32), 'tags': array([b'a', b'b'], dtype=object)}
    """
    found = read_features(serialized)
    return {name: decode_feature(found[name]) for name in sorted(found)}


def decode_feature(found: Any) -> Array:
    """Return a feature's values as an array of its own kind."""
    kind = found.WhichOneof("kind") or "float_list"
    return as_array(VALUES_OF[kind](found), kind)


def read_features(serialized: bytes) -> Any:
    """Return the mapping from name to protobuf feature; a missing name gives a feature without a kind."""
    try:
        return example_class().FromString(serialized).features.feature
    except (decode_error(), UnicodeError) as error:
        raise DataLossError(f"not a tf.Example: {len(serialized)} bytes that do not parse") from error
    except TypeError:
        raise TypeError(
            f"a serialized tf.Example is bytes, got {type(serialized).__name__}: parse_single_example takes one, "
            "parse_example a batch of them"
        ) from None


def kind_of_dtype(dtype: DTypeLike) -> str:
    """Return the list that holds values of `dtype`."""
    wanted = check_dtype("the dtype of a feature", dtype)
    if wanted.kind in "SUO":
        return "bytes_list"
    for kind in ("float_list", "int64_list"):
        if wanted == DTYPE_OF[kind]:
            return kind
    raise PlanError(f"the dtype of a feature must be np.int64, np.float32 or bytes, got {dtype!r}")


def as_array(values: Sequence[Any], kind: str) -> Array:
    """Return values of one kind as a 1-D array."""
    if kind != "bytes_list":
        dtype, size = DTYPE_OF[kind], len(values)
        return np.fromiter(values, dtype, size) if size <= FEW else np.array(values, dtype)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def flatten(value: Any) -> tuple[str | None, list[Any]]:
    """Return the kind of `value`, None for an empty list, and its values in one dimension."""
    if isinstance(value, (bytes, str)):
        return "bytes_list", [as_bytes(value)]
    check_unmasked(value, "the value")
    array = unchanged(value)
    if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
        array = np.asarray(value, object)  # NumPy's own strings lose zeros at their end
    if array.dtype.kind in "SUO":
        return "bytes_list", [as_bytes(item) for item in array.ravel().tolist()]
    if array.size == 0 and not isinstance(value, np.ndarray):
        return None, []
    if array.dtype.kind not in KIND_OF:
        raise TypeError(f"a tf.Example holds bytes, floats and integers, not {array.dtype}")
    if array.dtype.kind == "f":
        check_float32(value, array)
    numbers = array.astype(np.int64) if array.dtype.kind == "b" else array  # protobuf refuses a bool for an int
    return KIND_OF[array.dtype.kind], numbers.ravel().tolist()


def check_float32(value: Any, array: Array) -> None:
    """Raise for floats beyond those of 32 bits, and for integers in a list that would be others."""
    with np.errstate(over="ignore"):
        stored = array.astype(np.float32)
    if (np.isinf(stored) != np.isinf(array)).any():
        raise OverflowError("a tf.Example holds floats of 32 bits, and this one would be infinite")
    if isinstance(value, list):
        check_integers(cast("list[Any]", value), stored)


def as_bytes(item: Any) -> bytes:
    """Return bytes for bytes, or for a str its UTF-8."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    raise TypeError(f"a tf.Example holds bytes, floats and integers, not {type(item).__name__} in a list of objects")


@cache
def example_class() -> Any:
    """Return the protobuf class of tf.Example, built at run time: no .proto file, and no clash with TensorFlow's."""
    with forks.IMPORTING:
        from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


@cache
def decode_error() -> type[Exception]:
    """Return the exception that the protobuf library raises for invalid bytes."""
    from google.protobuf.message import DecodeError

    return DecodeError


def file_descriptor() -> Any:
    """Return the descriptor of TensorFlow's example.proto and feature.proto."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(parent: Any, name: str) -> Any:
        added = parent.add()
        added.name = name
        return added

    def add_field(parent: Any, name: str, number: int, kind: int | str, **options: Any) -> None:
        label = proto.LABEL_REPEATED if options.pop("repeated", False) else proto.LABEL_OPTIONAL
        if isinstance(kind, str):
            options["type_name"], kind = f".tensorflow.{kind}", proto.TYPE_MESSAGE
        parent.field.add(name=name, number=number, type=kind, label=label, **options)

    lists = {"BytesList": proto.TYPE_BYTES, "FloatList": proto.TYPE_FLOAT, "Int64List": proto.TYPE_INT64}
    for name, kind in lists.items():
        add_field(message(file.message_type, name), "value", 1, kind, repeated=True)
    feature = message(file.message_type, "Feature")
    message(feature.oneof_decl, "kind")
    for i, (name, kind) in enumerate(zip(KINDS, lists, strict=True)):
        add_field(feature, name, i + 1, kind, oneof_index=0)
    features = message(file.message_type, "Features")
    entry = message(features.nested_type, "FeatureEntry")
    entry.options.map_entry = True
    add_field(entry, "key", 1, proto.TYPE_STRING)
    add_field(entry, "value", 2, "Feature")
    add_field(features, "feature", 1, "Features.FeatureEntry", repeated=True)
    add_field(message(file.message_type, "Example"), "features", 1, "Features")
    return file
