from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError, StructureError
from asyncdata.formats.example import (
    FixedLenFeature,
    VarLenFeature,
    make_example,
    message_class,
    parse_single_example,
    read_raw_features,
)
from asyncdata.formats.wire import packed_floats, single_bytes, single_float, single_int


def feature(value: Any) -> bytes:
    return read_raw_features(make_example({"x": value}))["x"]


def example_of(feature: bytes) -> bytes:
    """A tf.Example whose feature `x` is these bytes."""
    example = message_class("RawExample")()
    example.features.feature["x"] = feature
    return example.SerializeToString()


class TestQuick:
    @given(st.integers(0, 2**63 - 1))
    def test_integers(self, value: int) -> None:
        assert single_int(feature(value)) == value

    @pytest.mark.parametrize("value", [-1, -(2**63), [1, 2], [], 0.5, b"a", b"\x05"])
    def test_what_is_not_one_integer_of_0_or_above(self, value: Any) -> None:
        assert single_int(feature(value)) is None

    @pytest.mark.parametrize("size", [0, 1, 121, 122, 123, 124, 125, 126, 127, 128, 200, 16_000, 17_000])
    def test_bytes_of_any_size(self, size: int) -> None:
        value = bytes(i % 251 for i in range(size))
        assert single_bytes(feature(value)) == (value if size else None) or value == b""

    @pytest.mark.parametrize("value", [[b"a", b"b"], [], 1, 0.5, [b"a" * 200, b"b"]])
    def test_what_is_not_one_bytes_object(self, value: Any) -> None:
        assert single_bytes(feature(value)) is None

    @given(st.lists(st.floats(width=32), min_size=1, max_size=80))
    def test_floats(self, values: list[float]) -> None:
        found = packed_floats(feature(values))
        assert found is not None
        assert found.flags.writeable
        assert found.flags.aligned
        np.testing.assert_array_equal(found, np.array(values, np.float32))

    @given(st.floats(width=32, allow_nan=False))
    def test_one_float(self, value: float) -> None:
        assert single_float(feature(value)) == value


class TestOddEncodings:
    """What no writer leaves, but protobuf reads."""

    @pytest.mark.parametrize(
        ("encoded", "spec", "expected"),
        [
            (b"\x1a\x02\x08\x05", FixedLenFeature((), np.int64), 5),  # not packed
            (b"\x1a\x04\x08\x05\x08\x06", VarLenFeature(np.int64), [5, 6]),
            (b"\x12\x05\x0d\x00\x00\x80?", FixedLenFeature((), np.float32), 1.0),
            (b"\x12\x0c\n\x04\x00\x00\x80?\n\x04\x00\x00\x00@", VarLenFeature(np.float32), [1.0, 2.0]),  # in two runs
            (b"\x1a\x03\n\x01\x05\x1a\x03\n\x01\x06", VarLenFeature(np.int64), [5, 6]),  # a list in two parts
            (b"\x1a\x03\n\x01\x05\n\x03\n\x01a", FixedLenFeature((), bytes), b"a"),  # of two kinds, the last
            (b"\x1a\x83\x00\n\x01\x05", FixedLenFeature((), np.int64), 5),  # sizes longer than they need be
            (b"\x1a\x04\n\x02\x85\x00", FixedLenFeature((), np.int64), 5),
            (b"\x1a\x04\n\x02\x05\x06", VarLenFeature(np.int64), [5, 6]),
            (b"\n\x06\n\x01a\n\x01b", VarLenFeature(bytes), [b"a", b"b"]),
        ],
    )
    def test_is_read_as_protobuf_does(self, encoded: bytes, spec: Any, expected: Any) -> None:
        found = parse_single_example(example_of(encoded), {"x": spec})["x"]
        assert np.asarray(found).tolist() == expected

    @pytest.mark.parametrize(
        "encoded", [b"\x1a\x04\n\x02\x85\x86", b"\n\x05\n\x09abc", b"\x12\x04\n\x03abc", b"\x1a\xff"]
    )
    def test_damage_is_an_error(self, encoded: bytes) -> None:
        for spec in (FixedLenFeature((), np.int64), FixedLenFeature((), np.float32), FixedLenFeature((), bytes)):
            with pytest.raises(DataLossError, match=r"no tf\.Example: a feature|no tf\.Example"):
                parse_single_example(example_of(encoded), {"x": spec})

    @given(st.sampled_from([b"\n", b"\x12", b"\x1a"]), st.binary(max_size=12))
    def test_quick_and_slow_agree(self, kind: bytes, data: bytes) -> None:
        for encoded in (kind + bytes([len(data)]) + data, kind + data):
            whole = message_class("Feature")()
            try:
                whole.ParseFromString(encoded)
            except Exception:
                whole = None
            for quick, name in ((single_int, "int64_list"), (single_float, "float_list"), (single_bytes, "bytes_list")):
                found = quick(encoded)
                if found is not None:
                    assert whole is not None
                    np.testing.assert_array_equal([found], list(getattr(whole, name).value))

    @given(st.binary(max_size=60))
    def test_any_bytes_parse_or_are_refused(self, data: bytes) -> None:
        for spec in (FixedLenFeature((), np.int64), VarLenFeature(np.float32), FixedLenFeature((), bytes)):
            with suppress(DataLossError, StructureError):
                parse_single_example(example_of(data), {"x": spec})
