"""Values that elements may be, by package."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import math
import operator
import pathlib
import pickle
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

import numpy as np

import asyncdata as ad
from tests.elements import package_classes
from tests.elements.sameness import difference

__all__ = ("CONTAINERS", "VALUES", "Make", "Tagged", "optional")

Make = Callable[[], Any]


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Tagged(np.ndarray[Any, Any]):
    """An array with an attribute."""

    def __array_finalize__(self, obj: Any) -> None:
        self.tag = getattr(obj, "tag", "")

    def __reduce__(self) -> Any:
        return tagged, (np.asarray(self).copy(), self.tag)


def tagged(values: Any, tag: str) -> Any:
    made = np.asarray(values).view(Tagged)
    made.tag = tag
    return made


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Octets(bytes):
    pass


class Several(list[Any]):
    pass


class Pair(NamedTuple):
    x: Any
    y: Any


OldPair = collections.namedtuple("OldPair", ["x", "y"])  # noqa: PYI024  its fields have no types


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: Any
    y: Any = None


@dataclasses.dataclass(kw_only=True)
class Worded:
    x: Any
    y: Any = None


@dataclasses.dataclass
class Initial:
    x: Any
    scale: dataclasses.InitVar[int] = 2
    y: Any = dataclasses.field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.y = scale


@dataclasses.dataclass
class Extra:
    """With an attribute that is no field."""

    x: Any

    def __post_init__(self) -> None:
        self.note = "extra"


@dataclasses.dataclass
class Child(Record):
    z: Any = 3


class Plain:
    """An object with attributes and equality."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and difference(self.x, other.x) == ""

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class Row(TypedDict):
    x: Any


class Words(dict[str, Any]):
    """A dict with an attribute."""

    def __init__(self, *args: Any, note: str = "") -> None:
        super().__init__(*args)
        self.note = note


class Own(collections.UserDict[str, Any]):
    pass


class Read(Mapping[str, Any]):
    """A mapping that cannot be written to."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __iter__(self) -> Any:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


class Repeated(Read):
    """A mapping with several values for a key."""

    def getall(self, key: str) -> list[Any]:
        return [self.parts[key], self.parts[key]]

    def __eq__(self, other: object) -> bool:
        return type(other) is Repeated and repr(self.parts) == repr(other.parts)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def function(x: Any) -> Any:
    return x


def mapped() -> Any:
    path = pathlib.Path(__file__)
    return np.memmap(path, np.uint8, "r", 3, (5,))


def read_only(values: Any) -> Any:
    made = np.array(values)
    made.flags.writeable = False
    return made


def object_array(*values: Any) -> Any:
    made = np.empty(len(values), object)
    for place, value in enumerate(values):
        made[place] = value
    return made


VALUES: dict[str, Make] = {
    # NumPy: arrays
    "int64": lambda: np.arange(6).reshape(2, 3),
    "int8": lambda: np.array([1, -2], np.int8),
    "uint64": lambda: np.array([2**64 - 1, 1], np.uint64),
    "bool array": lambda: np.array([True, False]),
    "float16": lambda: np.array([1.5, np.nan], np.float16),
    "float32": lambda: np.array([1.5, -0.0, np.inf], np.float32),
    "longdouble": lambda: np.array([1, 3], np.longdouble) / 3,
    "complex64": lambda: np.array([1 + 2j], np.complex64),
    "clongdouble": lambda: np.array([1 + 2j], np.clongdouble) / 3,
    "big-endian": lambda: np.array([1, 2, 3], ">i4"),
    "big-endian floats": lambda: np.array([1.5, 2.5], ">f8"),
    "Fortran order": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": lambda: np.arange(10)[::3],
    "backwards": lambda: np.arange(5)[::-1],
    "packed field": lambda: np.array([(1, 2.5), (3, 4.5)], [("a", "i1"), ("b", "<f8")])["b"],
    "broadcast": lambda: np.broadcast_to(np.arange(3), (2, 3)),
    "0-d": lambda: np.array(5),
    "0-d float32": lambda: np.array(0.5, np.float32),
    "0-d object": lambda: np.array("text", object),
    "empty": lambda: np.empty((0, 3), np.float32),
    "empty rows": lambda: np.empty((2, 0), np.int16),
    "read-only": lambda: read_only([1, 2]),
    "memmap": mapped,
    "structured": lambda: np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")]),
    "structured, packed": lambda: np.array([(1, 2.5)], [("a", "i1"), ("b", "<f8")]),
    "structured, aligned": lambda: np.array([(1, 2.5)], np.dtype([("a", "i1"), ("b", "<f8")], align=True)),
    "structured, nested": lambda: np.array([((1, 2), [3, 4])], [("a", [("b", "i4"), ("c", ">i2")]), ("d", "u1", 2)]),
    "structured, titles": lambda: np.array([(1,)], [(("title", "a"), "i4")]),
    "structured, objects": lambda: np.array([(1, "x")], [("a", "i4"), ("b", object)]),
    "record array": lambda: np.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "datetime64 s": lambda: np.array(["2020-01-01", "NaT"], "M8[s]"),
    "datetime64 25s": lambda: np.array([1, 2], "M8[25s]"),
    "datetime64 ns": lambda: np.array(["1500-01-01"], "M8[D]").astype("M8[us]"),
    "timedelta64": lambda: np.array([1, 2], "m8[ms]"),
    "timedelta64 generic": lambda: np.array([1, 2], "m8"),
    "str": lambda: np.array(["a", "bcd", ""]),
    "bytes": lambda: np.array([b"a\0", b"bcd"]),
    "void": lambda: np.array([b"ab\0", b"cde"], "V3"),
    "masked": lambda: np.ma.array([1, 2, 3], mask=[0, 1, 0], fill_value=9),
    "masked, no mask": lambda: np.ma.array([1.5, 2]),
    "masked, hard": lambda: np.ma.array([1, 2], mask=[0, 1], hard_mask=True),
    "masked, structured": lambda: np.ma.array([(1, 2.0)], mask=[(0, 1)], dtype=[("a", "i4"), ("b", "f8")]),
    "masked constant": lambda: np.ma.masked,
    "objects": lambda: object_array(1, "a", None, [1, 2]),
    "object arrays": lambda: object_array(np.arange(2), np.arange(3)),
    "object big ints": lambda: object_array(2**70, -(2**70)),
    "subclass": lambda: tagged([1, 2], "t"),
    "matrix": lambda: np.asmatrix(np.arange(4).reshape(2, 2)),
    "chararray": lambda: np.char.array(["a", "b "]) if hasattr(np.char, "array") else np.array(["a"]),
    "metadata": lambda: np.array([1, 2], np.dtype("i4", metadata={"unit": "m"})),
    # NumPy: scalars
    "np.int32": lambda: np.int32(5),
    "np.uint64": lambda: np.uint64(2**64 - 1),
    "np.float32": lambda: np.float32(0.1),
    "np.float16": lambda: np.float16(0.1),
    "np.longdouble": lambda: np.longdouble(1) / 3,
    "np.bool": lambda: np.bool_(True),
    "np.complex64": lambda: np.complex64(1 + 2j),
    "np.bytes_": lambda: np.bytes_(b"ab\0\0"),
    "np.str_": lambda: np.str_("ab\0"),
    "np.str_ empty": lambda: np.str_(""),
    "np.datetime64": lambda: np.datetime64("2020-01-01", "D"),
    "np.datetime64 NaT": lambda: np.datetime64("NaT", "s"),
    "np.timedelta64": lambda: np.timedelta64(5, "m"),
    "np.void": lambda: np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
    "np.void bytes": lambda: np.void(b"ab\0"),
    "np.record": lambda: np.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])[0],
    "dtype": lambda: np.dtype("f4"),
    # Python
    "None": lambda: None,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "bool": lambda: True,
    "int": lambda: -7,
    "big int": lambda: 2**70,
    "float": lambda: 0.1,
    "nan": lambda: math.nan,
    "minus zero": lambda: -0.0,
    "complex": lambda: complex(1, -0.0),
    "text": lambda: "é\0\ud800",
    "octets": lambda: b"a\0",
    "bytearray": lambda: bytearray(b"a\0"),
    "memoryview": lambda: memoryview(b"abc"),
    "array.array": lambda: array.array("i", [1, 2]),
    "list": lambda: [1, [2, 3.5], "a", None],
    "list of texts": lambda: ["a", "b\0"],
    "empty list": list,
    "ragged list": lambda: [[1], [2, 3]],
    "set": lambda: {1, "a"},
    "frozenset": lambda: frozenset({1, 2}),
    "deque": lambda: collections.deque([1, 2], 5),
    "range": lambda: range(2, 9, 3),
    "slice": lambda: slice(1, 2),
    "Decimal": lambda: decimal.Decimal("1.10"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "datetime": lambda: datetime.datetime(2020, 1, 1, 12, 0, 0, 5),
    "datetime with a zone": lambda: datetime.datetime(
        2020, 10, 25, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=1
    ),
    "date": lambda: datetime.date(1, 1, 1),
    "time": lambda: datetime.time(1, 2, 3, 4),
    "timedelta": lambda: datetime.timedelta(days=-1, microseconds=1),
    "timezone": lambda: datetime.UTC,
    "UUID": lambda: uuid.UUID(int=5),
    "Enum": lambda: Colour.BLUE,
    "IntEnum": lambda: Level.LOW,
    "Flag": lambda: Flags.A | Flags.B,
    "Path": lambda: pathlib.Path("a/b"),
    "PureWindowsPath": lambda: pathlib.PureWindowsPath("c:/b"),
    "IPv4Address": lambda: ipaddress.ip_address("127.0.0.1"),
    "Pattern": lambda: re.compile("a+", re.IGNORECASE),
    "subclass of str": lambda: Text("a"),
    "subclass of int": lambda: Whole(5),
    "subclass of float": lambda: Real(5.5),
    "subclass of bytes": lambda: Octets(b"a"),
    "subclass of list": lambda: Several([1, 2]),
    "function": lambda: function,
    "built-in": lambda: math.sqrt,
    "itemgetter": lambda: operator.itemgetter(1, 2),
    "class": lambda: Plain,
    "generic alias": lambda: list[int],
    "exception": lambda: KeyError("k"),
    "object": lambda: Plain(np.arange(2)),
    "Ragged": lambda: ad.Ragged(np.array([1, 2, 3]), np.array([0, 1, 3])),
    "TensorSpec": lambda: ad.TensorSpec((2, None), np.int32),
}
if hasattr(np.dtypes, "StringDType"):
    VALUES["StringDType"] = lambda: np.array(["a", "long text " * 5, "x\0"], np.dtypes.StringDType())
    VALUES["StringDType with None"] = lambda: np.array(["a", None], np.dtypes.StringDType(na_object=None))


def recursive_list() -> Any:
    made: list[Any] = [1]
    made.append(made)
    return made


def recursive_dict() -> Any:
    made: dict[str, Any] = {"x": 1}
    made["me"] = made
    return made


def recursive_record() -> Any:
    made = Record(1)
    made.y = made
    return made


def words() -> Any:
    return Words({"x": 1}, note="n")


def deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"x": made}
    return made


X = np.arange(3, dtype=np.int16)

CONTAINERS: dict[str, Make] = {
    "tuple": lambda: (1, X),
    "tuple of one": lambda: (X,),
    "empty tuple": lambda: (),
    "nested tuple": lambda: ((1, 2.5), (X, ("a", b"b"))),
    "tuple of None": lambda: (None, X),
    "dict": lambda: {"x": X, "y": 1},
    "dict of ints": lambda: {1: X, 2: 2},
    "dict of 1 and True keys": lambda: {True: 1, 2: 2},
    "dict of tuples": lambda: {(1, "a"): X},
    "dict of None": lambda: {None: X},
    "dict of floats": lambda: {0.5: X, math.inf: 1},
    "dict of Enum": lambda: {Colour.RED: X},
    "dict of np.int64": lambda: {np.int64(1): X},
    "dict of bytes": lambda: {b"a": 1},
    "dict order": lambda: {"b": 1, "a": 2},
    "empty dict": dict,
    "nested empty": lambda: {"x": {}, "y": (), "z": []},
    "dict in a list": lambda: [{"x": X}, {"x": X}],
    "tuple in a list": lambda: [(1, "a"), (2, "b")],
    "list in a tuple": lambda: ([1, 2], [X]),
    "TypedDict": lambda: Row(x=X),
    "subclass of dict": words,
    "OrderedDict": lambda: collections.OrderedDict([("b", X), ("a", 1)]),
    "defaultdict": lambda: collections.defaultdict(list, {"x": X}),
    "Counter": lambda: collections.Counter("aab"),
    "UserDict": lambda: collections.UserDict({"x": X}),
    "subclass of UserDict": lambda: Own({"x": X}),
    "ChainMap": lambda: collections.ChainMap({"x": X}, {"y": 1}),
    "MappingProxyType": lambda: types.MappingProxyType({"x": X}),
    "own Mapping": lambda: Read(x=X),
    "mapping with several values for a key": lambda: Repeated(x=X),
    "UserList": lambda: collections.UserList([1, 2]),
    "NamedTuple": lambda: Pair(X, 1),
    "namedtuple": lambda: OldPair(X, "a"),
    "nested NamedTuple": lambda: Pair(Pair(1, 2), {"x": X}),
    "dataclass": lambda: Record(X, 1),
    "frozen dataclass": lambda: Frozen(X, "a"),
    "dataclass with slots": lambda: Slotted(X, 1),
    "frozen dataclass with slots": lambda: FrozenSlotted(X, 1),
    "dataclass by words": lambda: Worded(x=X, y=2),
    "dataclass with InitVar": lambda: Initial(X, 5),
    "dataclass with an attribute": lambda: Extra(X),
    "dataclass that inherits": lambda: Child(X, 2),
    "nested dataclass": lambda: Record({"a": Frozen(X)}, [1, 2]),
    "SimpleNamespace": lambda: types.SimpleNamespace(x=X, y=1),
    "struct_time": lambda: __import__("time").gmtime(0),
    "stat result": lambda: pathlib.Path("/").stat(),
    "dict views": lambda: {"x": 1}.keys(),
    "generator": lambda: (i for i in range(2)),
    "tuple of Ragged": lambda: (ad.Ragged(np.array([1, 2]), np.array([0, 2])), 1),
    "tuple of objects": lambda: (object_array(np.arange(2), None), X),
    "tuple of masked": lambda: (np.ma.array([1, 2], mask=[0, 1]), 1),
    "deep": lambda: deep(50),
    "recursive list": recursive_list,
    "recursive dict": recursive_dict,
    "recursive dataclass": recursive_record,
}


def torch_values() -> dict[str, Make]:
    import torch

    from tests.elements.boxes import Boxes

    kinds = ("bool", "float16", "float32", "float64", "complex64", "complex128", "bfloat16")
    integers = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    small = [f"float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")]
    return {
        **{
            f"torch {name}": (lambda name=name: torch.tensor([0, 1, 1]).to(getattr(torch, name)))
            for name in (*kinds, *integers, *small)
        },
        "torch complex32": lambda: torch.tensor([1 + 2j]).to(torch.complex32),
        "torch 0-d": lambda: torch.tensor(5),
        "torch 0-d bfloat16": lambda: torch.tensor(1.5, dtype=torch.bfloat16),
        "torch empty": lambda: torch.empty((0, 2), dtype=torch.bfloat16),
        "torch strided": lambda: torch.arange(12).reshape(3, 4).t()[::2],
        "torch expanded": lambda: torch.arange(3).expand(2, 3),
        "torch conj": lambda: torch.tensor([1 + 2j]).conj(),
        "torch grad": lambda: torch.ones(2, requires_grad=True),
        "torch Parameter": lambda: torch.nn.Parameter(torch.ones(2)),
        "torch Buffer": lambda: torch.nn.Buffer(torch.ones(2)),
        "torch subclass": lambda: Boxes(torch.arange(4), "XYXY"),
        "torch sparse": lambda: torch.eye(2).to_sparse(),
        "torch csr": lambda: torch.eye(2).to_sparse_csr(),
        "torch quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "torch nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        "torch jagged": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        "torch meta": lambda: torch.ones(2, device="meta"),
        "torch float4": lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "torch dtype": lambda: torch.float32,
        "torch device": lambda: torch.device("cpu"),
        "torch Size": lambda: torch.Size([1, 2]),
        "torch PackedSequence": lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(2)]),
        "list of tensors": lambda: [torch.ones(2), torch.ones(2)],
    }


def jax_values() -> dict[str, Make]:
    import jax
    import jax.numpy as jnp

    return {
        "jax float32": lambda: jnp.arange(3, dtype=jnp.float32),
        "jax bfloat16": lambda: jnp.arange(3, dtype=jnp.bfloat16),
        "jax 0-d": lambda: jnp.float32(0.5),
        "jax key": lambda: jax.random.key(1),
        "jax int4": lambda: jnp.arange(3, dtype=jnp.int4),
        "ml_dtypes bfloat16": lambda: np.arange(3).astype(jnp.bfloat16),
        "ml_dtypes float8": lambda: np.arange(3).astype(jnp.float8_e4m3fn),
        "ml_dtypes float8_e5m2": lambda: np.arange(3).astype(jnp.float8_e5m2),
        "ml_dtypes int4": lambda: np.arange(3).astype(jnp.int4),
        "ml_dtypes scalar": lambda: np.arange(3).astype(jnp.bfloat16)[1],
        "ml_dtypes big": lambda: np.arange(5000).astype(jnp.bfloat16),
    }


def arrow_values() -> dict[str, Make]:
    import pyarrow as pa

    return {
        "arrow string": lambda: pa.scalar("text"),
        "arrow binary": lambda: pa.scalar(b"ab"),
        "arrow int": lambda: pa.scalar(5),
        "arrow null": lambda: pa.scalar(None, pa.int64()),
        "arrow timestamp": lambda: pa.scalar(datetime.datetime(2020, 1, 1)),
        "arrow struct": lambda: pa.scalar({"a": 1}),
        "arrow list": lambda: pa.scalar([1, 2]),
        "arrow array": lambda: pa.array([1, 2, 3]),
        "arrow array of strings": lambda: pa.array(["a", "b"]),
        "arrow array with nulls": lambda: pa.array([1, None, 3]),
        "arrow chunked": lambda: pa.chunked_array([[1, 2], [3]]),
        "arrow batch": lambda: pa.RecordBatch.from_pydict({"a": [1, 2], "b": [1.5, 2.5]}),
        "arrow table": lambda: pa.table({"a": [1, 2], "b": [1.5, 2.5]}),
        "arrow buffer": lambda: pa.py_buffer(b"abc"),
        "arrow tensor": lambda: pa.Tensor.from_numpy(np.arange(3)),
        "arrow schema": lambda: pa.schema({"a": pa.int64()}),
    }


def frame_values() -> dict[str, Make]:
    import pandas as pd
    import polars as pl

    return {
        "pandas Timestamp": lambda: pd.Timestamp("2020-01-01", tz="UTC"),
        "pandas NaT": lambda: pd.NaT,
        "pandas NA": lambda: pd.NA,
        "pandas Timedelta": lambda: pd.Timedelta(5, "s"),
        "pandas Interval": lambda: pd.Interval(0, 1),
        "pandas Period": lambda: pd.Period("2020-01", "M"),
        "pandas Series": lambda: pd.Series([1, 2], name="a"),
        "pandas Series of Int64": lambda: pd.Series([1, None], dtype="Int64"),
        "pandas Series of strings": lambda: pd.Series(["a", None]),
        "pandas Categorical": lambda: pd.Categorical(["a", "b", "a"]),
        "pandas Index": lambda: pd.Index([1, 2]),
        "pandas datetimes with a zone": lambda: pd.Series(pd.to_datetime(["2020-01-01"], utc=True)),
        "pandas DataFrame": lambda: pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}),
        "pandas DataFrame of one dtype": lambda: pd.DataFrame({"a": [1.5, 2.5], "b": [1.5, 2.5]}),
        "polars Series": lambda: pl.Series("a", [1, 2]),
        "polars Series of structs": lambda: pl.Series("a", [{"x": 1}, {"x": 2}]),
        "polars Series with nulls": lambda: pl.Series("a", [1, None]),
        "polars DataFrame": lambda: pl.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}),
        "polars LazyFrame": lambda: pl.DataFrame({"a": [1, 2]}).lazy(),
    }


def other_values() -> dict[str, Make]:
    """Of small packages."""
    found: dict[str, Make] = {}
    try:
        from PIL import Image
    except ImportError:
        pass
    else:
        found["PIL image"] = lambda: Image.new("RGB", (3, 2), (1, 2, 3))
        found["PIL palette image"] = lambda: Image.new("P", (3, 2), 1)
    try:
        import scipy.sparse
    except ImportError:
        pass
    else:
        found["scipy csr"] = lambda: scipy.sparse.csr_array(np.eye(2))
    return {**found, **package_classes.containers()}


def tensorflow_values() -> dict[str, Make]:
    import tensorflow as tf

    return {
        "tf tensor": lambda: tf.constant([1, 2]),
        "tf string": lambda: tf.constant("a"),
        "tf bfloat16": lambda: tf.constant([1, 2], tf.bfloat16),
        "tf ragged": lambda: tf.ragged.constant([[1], [2, 3]]),
        "tf sparse": lambda: tf.sparse.from_dense([1, 0]),
        "tf variable": lambda: tf.Variable([1, 2]),
    }


def transformers_values() -> dict[str, Make]:
    """Return them without the attributes that their own pickles leave out."""
    import torch
    from transformers import BatchEncoding, BatchFeature
    from transformers.modeling_outputs import BaseModelOutput

    def pickled(value: Any) -> Make:
        return lambda: pickle.loads(pickle.dumps(value))

    return {
        "BatchEncoding": pickled(BatchEncoding({"input_ids": [[1, 2]], "attention_mask": [[1, 1]]})),
        "BatchEncoding of arrays": pickled(BatchEncoding({"input_ids": X})),
        "BatchEncoding of tensors": pickled(BatchEncoding({"input_ids": torch.arange(3)})),
        "BatchFeature": pickled(BatchFeature({"input_values": X})),
        "ModelOutput": lambda: BaseModelOutput(torch.arange(3.0)),
    }


def tensordict_values() -> dict[str, Make]:
    import torch
    from tensordict import TensorDict

    return {
        "TensorDict": lambda: TensorDict({"x": torch.arange(3), "y": {"z": torch.ones(3, 2)}}, batch_size=[3]),
        "TensorDict without an axis": lambda: TensorDict({"x": torch.arange(3)}, batch_size=[]),
    }


def optional(name: str) -> dict[str, Make]:
    """Return the values of a package, which must be installed."""
    return {
        "torch": torch_values,
        "jax": jax_values,
        "pyarrow": arrow_values,
        "pandas": frame_values,
        "transformers": transformers_values,
        "tensordict": tensordict_values,
        "other": other_values,
        "tensorflow": tensorflow_values,
    }[name]()
