from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError, PlanError, StructureError
from asyncdata.formats.tf_example import (
    FixedLenFeature,
    VarLenFeature,
    decode_example,
    make_example,
    parse_example,
    parse_single_example,
)

ints = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32, allow_nan=False)
sizes = st.integers(1, 100)  # below and above what NumPy takes one by one


def parsed(value, feature):
    return parse_single_example(make_example({"x": value}), {"x": feature})["x"]


class TestMake:
    @pytest.mark.parametrize(
        ("value", "kind", "values"),
        [
            (b"a\0", object, [b"a\0"]),
            ("ü", object, ["ü".encode()]),
            (3, np.int64, [3]),
            (True, np.int64, [1]),
            (0.5, np.float32, [0.5]),
            ([1, 2.5], np.float32, [1, 2.5]),
            ([True, False], np.int64, [1, 0]),
            ([b"a\0", "b\0"], object, [b"a\0", b"b\0"]),
            (("a", "b"), object, [b"a", b"b"]),
            ([[1, 2], [3, 4]], np.int64, [1, 2, 3, 4]),
            (np.arange(4, dtype=np.uint8).reshape(2, 2), np.int64, [0, 1, 2, 3]),
            (np.array([1, 2], np.float64), np.float32, [1, 2]),
            (np.array([1, 2], np.float16), np.float32, [1, 2]),
            (np.array(["a", "ü"]), object, [b"a", "ü".encode()]),
            (np.array([b"a"]), object, [b"a"]),
            (np.array([b"a\0", "b"], object), object, [b"a\0", b"b"]),
            (np.float64(0.5), np.float32, [0.5]),
            (np.int32(5), np.int64, [5]),
            (np.array(5), np.int64, [5]),
            (np.empty(0, np.int32), np.int64, []),
            (np.empty(0, np.float32), np.float32, []),
        ],
    )
    def test_kind_follows_the_value(self, value, kind, values) -> None:
        found = decode_example(make_example({"x": value}))["x"]
        assert (found.dtype, found.tolist()) == (np.dtype(kind), values)

    def test_empty_list_has_no_kind(self) -> None:
        assert parsed([], VarLenFeature(bytes)).tolist() == []
        assert parsed([], VarLenFeature(np.int64)).tolist() == []

    @pytest.mark.parametrize("value", [None, [None], 1j, np.datetime64(0, "s"), [b"a", 1], 2**63, 2**64, object()])
    def test_what_it_cannot_hold(self, value) -> None:
        with pytest.raises(StructureError, match="feature 'x'"):
            make_example({"y": 1, "x": value})

    def test_ragged_list(self) -> None:
        with pytest.raises(StructureError, match="feature 'x'"):
            make_example({"x": [[1], [2, 3]]})

    def test_long_values_are_not_printed_whole(self) -> None:
        with pytest.raises(StructureError) as caught:
            make_example({"x": [b"long" * 10_000, 1]})
        assert len(str(caught.value)) < 300

    def test_nothing(self) -> None:
        assert decode_example(make_example({})) == {}

    def test_same_bytes_for_the_same_features(self) -> None:
        assert make_example({"a": 1, "b": 2}) == make_example({"b": 2, "a": 1})


class TestParse:
    @given(st.data(), sizes)
    def test_there_and_back(self, data: st.DataObject, size: int) -> None:
        element, dtype = data.draw(st.sampled_from([(ints, np.int64), (floats, np.float32), (st.binary(), bytes)]))
        values = data.draw(st.lists(element, min_size=size, max_size=size))
        for feature in (VarLenFeature(dtype), FixedLenFeature((size,), dtype)):
            found = parsed(values, feature)
            assert found.tolist() == values
            assert found.dtype == (object if dtype is bytes else dtype)

    def test_shapes(self) -> None:
        found = parsed(range(6), FixedLenFeature((2, 3), np.int64))
        assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert parsed([7], FixedLenFeature([1], np.int64)).tolist() == [7]
        assert parsed(np.empty(0, np.int64), FixedLenFeature([0], np.int64)).shape == (0,)

    @pytest.mark.parametrize(
        ("value", "dtype", "kind"), [(3, np.int64, np.int64), (0.5, np.float32, np.float32), (b"a", str, bytes)]
    )
    def test_scalars(self, value, dtype, kind) -> None:
        found = parsed(value, FixedLenFeature((), dtype))
        assert type(found) is kind
        assert found == value

    @pytest.mark.parametrize("dtype", [bytes, str, object, np.bytes_, np.str_, np.object_])
    def test_bytes_by_any_name(self, dtype) -> None:
        assert parsed(b"a\0", FixedLenFeature((), dtype)) == b"a\0"

    def test_arrays_are_the_callers_own(self) -> None:
        found = parsed([1, 2], FixedLenFeature((2,), np.int64))
        found[0] = 5  # writable
        feature = FixedLenFeature((2,), np.int64, default_value=[1, 2])
        default = parse_single_example(make_example({}), {"x": feature})["x"]
        default[0] = 5
        assert parse_single_example(make_example({}), {"x": feature})["x"].tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("shape", "dtype", "default"),
        [((), np.int64, 0), ((), np.float32, 1), ((), bytes, b""), ((), str, "a"), ((2, 1), np.float32, [[1], [2]])],
    )
    def test_default_for_what_is_missing(self, shape, dtype, default) -> None:
        feature = FixedLenFeature(shape, dtype, default_value=default)
        for features in ({}, {"x": []}):
            found = parse_single_example(make_example(features), {"x": feature})["x"]
            expected = default.encode() if isinstance(default, str) else np.asarray(default).tolist()
            assert np.asarray(found).tolist() == expected
            assert np.shape(found) == shape

    def test_default_is_not_for_what_is_there(self) -> None:
        assert parsed(5, FixedLenFeature((), np.int64, default_value=0)) == 5
        with pytest.raises(StructureError, match="that is 1 values, got 2"):
            parsed([5, 6], FixedLenFeature((), np.int64, default_value=0))

    @pytest.mark.parametrize(
        ("value", "feature", "message"),
        [
            ([], FixedLenFeature((), np.int64), "expected int64 of shape .* no such feature, and there is no default"),
            (0.5, FixedLenFeature((), np.int64), r"expected int64 of shape \(\), got float32"),
            (b"a", FixedLenFeature((2,), np.float32), r"expected float32 of shape \(2,\), got bytes"),
            (1, FixedLenFeature((), bytes), r"expected bytes of shape \(\), got int64"),
            ([1, 2], FixedLenFeature((3,), np.int64), "that is 3 values, got 2"),
            ([1, 2], FixedLenFeature((), np.int64), "that is 1 values, got 2"),
            (np.empty(0, np.int64), FixedLenFeature((), np.int64), "that is 1 values, got 0"),
            (0.5, FixedLenFeature((0,), np.int64), "expected int64 of shape .* got float32"),
            (0.5, VarLenFeature(np.int64), "expected int64, got float32"),
        ],
    )
    def test_what_does_not_fit(self, value, feature, message: str) -> None:
        with pytest.raises(StructureError, match=f"feature 'x': .*{message}"):
            parsed(value, feature)

    def test_missing_variable_length_is_empty(self) -> None:
        found = parse_single_example(make_example({}), {"x": VarLenFeature(np.float32)})["x"]
        assert (found.dtype, found.shape) == (np.float32, (0,))

    @pytest.mark.parametrize("garbage", [b"garbage", b"\x0a\xff", make_example({"x": 1})[:-1]])
    def test_garbage(self, garbage: bytes) -> None:
        with pytest.raises(DataLossError, match=f"not a tf.Example: {len(garbage)} bytes"):
            decode_example(garbage)

    @given(st.binary(max_size=60))
    def test_any_bytes_parse_or_are_refused(self, data: bytes) -> None:
        found: object = {}
        with suppress(DataLossError):
            found = decode_example(data)
        assert isinstance(found, dict)


class TestSpecification:
    @pytest.mark.parametrize("dtype", [np.int32, np.float64, bool, float])
    @pytest.mark.parametrize("make", [VarLenFeature, lambda dtype: FixedLenFeature((), dtype)])
    def test_other_dtypes(self, make, dtype) -> None:
        with pytest.raises(PlanError, match=r"must be np\.int64, np\.float32 or bytes, got"):
            make(dtype)

    @pytest.mark.parametrize("shape", [(None,), (-1,), (2, None)])
    def test_unknown_shapes(self, shape) -> None:
        with pytest.raises(PlanError, match="must be known"):
            FixedLenFeature(shape, np.int64)

    @pytest.mark.parametrize(
        ("shape", "dtype", "default"),
        [((), np.int64, 0.5), ((), np.int64, b"a"), ((2,), np.int64, 1), ((), np.float32, [1, 2]), ((), bytes, 1)],
    )
    def test_defaults_that_do_not_fit(self, shape, dtype, default) -> None:
        with pytest.raises(PlanError, match="default_value must be"):
            FixedLenFeature(shape, dtype, default_value=default)


class TestBatch:
    SPEC: ClassVar[dict[str, Any]] = {
        "a": FixedLenFeature((), np.int64),
        "b": FixedLenFeature((2,), np.float32),
        "c": FixedLenFeature((), bytes),
        "d": FixedLenFeature((1, 2), bytes, default_value=["x", "y"]),
        "e": VarLenFeature(np.int64),
    }

    @pytest.mark.parametrize("size", [1, 3, 60])
    def test_stacked(self, size: int) -> None:
        rows = [{"a": i, "b": [i, i + 0.5], "c": f"{i}\0", "e": list(range(i))} for i in range(size)]
        found = parse_example([make_example(row) for row in rows], self.SPEC)
        assert found["a"].dtype == np.int64
        assert found["a"].tolist() == list(range(size))
        assert found["b"].dtype == np.float32
        assert found["b"].tolist() == [row["b"] for row in rows]
        assert found["c"].tolist() == [row["c"].encode() for row in rows]
        assert found["d"].tolist() == [[[b"x", b"y"]]] * size
        assert [array.tolist() for array in found["e"]] == [row["e"] for row in rows]

    def test_empty_batch(self) -> None:
        found = parse_example([], self.SPEC)
        assert (found["b"].shape, found["b"].dtype, found["e"]) == ((0, 2), np.float32, [])

    def test_error_says_which_example(self) -> None:
        good = make_example({"a": 1})
        for bad in (make_example({}), b"garbage"):
            with pytest.raises((StructureError, DataLossError)) as caught:
                parse_example([good, bad], {"a": self.SPEC["a"]})
            assert caught.value.__notes__ == ["in example 1 of the batch"]


@pytest.mark.parametrize(
    "value", [1e300, np.array([1, -1e39]), [2**24 + 1, 0.5], [[0.5, np.int32(2**24 + 1)]], 2.0**128]
)
def test_numbers_that_floats_of_32_bits_would_change_are_refused(value: Any) -> None:
    with pytest.raises(StructureError, match=r"feature 'x': .*(infinite|in a list would change as float32)"):
        make_example({"x": value})


def test_floats_of_32_bits_are_rounded() -> None:
    value = [0.1, float("inf"), float("nan"), 2**24, 3.4e38]
    found = decode_example(make_example({"x": value}))["x"]
    assert np.array_equal(found, np.array(value, np.float32), equal_nan=True)


def test_a_record_for_a_batch_and_features_of_others_are_errors_that_say_so() -> None:
    example = make_example({"a": 1})
    for parse, records in ((parse_example, example), (parse_single_example, [example])):
        with pytest.raises(TypeError, match="parse_single_example takes one, parse_example a batch"):
            parse(records, {"a": FixedLenFeature((), np.int64)})  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match=r"asyncdata's FixedLenFeature or VarLenFeature, got builtins\.object"):
        parse_single_example(example, {"a": object()})  # pyright: ignore[reportArgumentType]


def test_protobuf_is_imported_when_it_is_needed() -> None:
    program = """if True:
        import sys, asyncdata.formats.tf_example as example
        assert "google.protobuf" not in sys.modules
        example.make_example({"x": 1})
        assert "google.protobuf" in sys.modules
    """
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
