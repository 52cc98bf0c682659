"""Elements as bytes: what is written is read, and what is no element is an error."""

from __future__ import annotations

import dataclasses
import enum
import pickle
import sys
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.element_codec import decode_element, encode_element
from asyncdata.testing.checks import same


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    pixels: Any
    name: str = ""

    def __post_init__(self) -> None:
        if self.name == "made":
            raise AssertionError("reading calls no method of a class")


class Colour(enum.IntEnum):
    RED = 1


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary() | st.text()
) | st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2020-01-01"), np.str_("a")])


@given(
    value=st.recursive(
        leaves,
        lambda part: (
            st.lists(part, max_size=4)
            | st.lists(part, max_size=4).map(tuple)
            | st.dictionaries(st.text(max_size=3) | st.integers(), part, max_size=4)
            | st.builds(Point, part, part)
            | st.builds(Picture, part)
        ),
        max_leaves=12,
    )
)
def test_what_is_written_is_read(value: Any) -> None:
    assert same(decode_element(encode_element(value)), value)


ARRAYS: list[Any] = [
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.arange(6.0).reshape(2, 3).T,
    np.arange(10)[::2],
    np.array(3.5),
    np.zeros((0, 3), np.uint8),
    np.zeros((2, 0)),
    np.array(["a", "bcd"]),
    np.array([b"a\0", b"bc"]),
    np.array(["2020-01-01"], "M8[D]"),
    np.array([True, False]),
    np.array([1, 2], ">i4"),
    np.array([(1, [2.0, 3.0])], [("a", "i4"), ("b", "f8", (2,))]),
    np.array([b"x\0", None, {"k": np.arange(3)}], object),
    np.empty((2, 0), object),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_keep_dtype_and_shape_and_lie_aligned(array: Any) -> None:
    tag, found = decode_element(encode_element(("odd", array)))
    assert tag == "odd"
    assert same(found, array)
    if array.dtype != object and array.size:
        assert not found.flags.writeable
        assert found.flags.aligned


def test_an_array_is_not_copied_when_it_is_read() -> None:
    data = encode_element(np.arange(1000))
    assert decode_element(data).base is not None
    assert np.shares_memory(decode_element(data), np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    "value",
    [
        Fraction(1, 2),
        pytest.param(object(), id="object"),
        {1, 2},
        Colour.RED,
        np.ma.masked_array([1]),
        pytest.param(lambda: 0, id="function"),
        range(3),
        [Fraction(1)],
    ],
    ids=repr,
)
def test_what_cannot_be_written_is_named(value: Any) -> None:
    with pytest.raises(ad.StructureError, match="(?s)cannot be written to a file: .*convert it in a map"):
        encode_element(value)


def test_a_complex_number_may_have_a_part_that_is_no_number() -> None:
    value = complex(0, float("nan"))
    assert same(decode_element(encode_element(value)), value)
    assert not same(decode_element(encode_element(value)), complex(1, float("nan")))


def test_a_class_that_nobody_would_find_again_is_named() -> None:
    class Here(NamedTuple):
        x: int

    with pytest.raises(ad.StructureError, match="define it at the top of a module"):
        encode_element(Here(1))


def test_reading_a_class_that_is_not_imported_imports_nothing() -> None:
    data = encode_element(Point(1, 2)).replace(__name__.encode(), b"x" * len(__name__))
    with pytest.raises(ad.StructureError, match=r"import xxx"):
        decode_element(data)


def test_reading_a_class_asks_no_module_that_makes_its_names_up(monkeypatch: pytest.MonkeyPatch) -> None:
    module, asked = ModuleType("m" * len(__name__)), list[str]()
    setattr(module, "__getattr__", lambda name: asked.append(name) or Point)  # noqa: B010
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ad.StructureError, match=r"m\.Point, which is not imported here"):
        decode_element(encode_element(Point(1, 2)).replace(__name__.encode(), module.__name__.encode()))
    assert asked == []


def test_reading_a_dataclass_calls_none_of_its_methods() -> None:
    value = Picture(1, "mbde")
    assert decode_element(encode_element(value).replace(b"mbde", b"made")).name == "made"


def test_only_named_tuples_and_dataclasses_are_made() -> None:
    data = encode_element(Point(1, 2))
    module = __name__.encode()
    for other in (b"Fraction", b"Colour\0\0", b"pytest\0\0"):
        with pytest.raises((ad.DataLossError, ad.StructureError)):
            decode_element(data.replace(b"Point", other[:5]))
    assert module in data


@given(data=st.binary(max_size=60), place=st.integers(0, 200), byte=st.integers(0, 255))
def test_what_is_no_element_is_an_error_and_nothing_else(data: bytes, place: int, byte: int) -> None:
    whole = encode_element({"a": (np.arange(3), [1, "x"], Point(1.0, None)), "o": ARRAYS[-2]})
    place %= len(whole)
    for broken in (data, whole[:place], whole + b"-", whole[:place] + bytes([byte]) + whole[place + 1 :]):
        try:
            found = decode_element(broken)
        except (ad.DataLossError, ad.StructureError):
            continue
        assert same(decode_element(encode_element(found)), found)  # by chance it is an element, and whole


def test_a_class_whose_name_is_no_text_is_an_error() -> None:
    whole = encode_element(Point(1.0, None))
    broken = whole.replace(encode_element("Point"), encode_element(True))
    assert broken != whole
    with pytest.raises(ad.DataLossError):
        decode_element(broken)


class Plain:
    """Neither a dataclass nor a named tuple; what it does when it is made or ends would run by a file's will."""

    made = 0

    def __new__(cls) -> Any:
        cls.made += 1
        return super().__new__(cls)

    def __del__(self) -> None:
        type(self).made += 1


class PlainTuple(tuple[Any, ...]):
    pass


@pytest.mark.parametrize(("tag", "kind"), [(b"k", Plain), (b"n", PlainTuple), (b"n", Plain), (b"k", PlainTuple)])
def test_no_other_class_is_made_even_without_fields(tag: bytes, kind: type) -> None:
    data = tag + encode_element(kind.__module__) + encode_element(kind.__qualname__) + encode_element({})
    with pytest.raises(ad.DataLossError, match=f"{kind.__name__} is not a (named tuple|dataclass)"):
        decode_element(data)
    assert Plain.made == 0


@pytest.mark.parametrize("dtype", ["S0", "U0", "V0"])
def test_items_without_a_size_are_few(dtype: str) -> None:
    few = np.ndarray((3, 5), dtype, b"")
    read = decode_element(encode_element(few))
    assert (read.shape, read.dtype.itemsize) == ((3, 5), 0)
    many = np.ndarray((1 << 40,), dtype, b"")
    with pytest.raises(ad.StructureError, match="without a size"):
        encode_element(many)
    head = encode_element(np.ndarray((7,), dtype, b""))
    with pytest.raises(ad.DataLossError, match="items without a size"):
        decode_element(head.replace((7).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"), 1))


def test_a_pickle_is_no_element() -> None:
    with pytest.raises(ad.DataLossError):
        decode_element(pickle.dumps(Fraction(1, 2)))
