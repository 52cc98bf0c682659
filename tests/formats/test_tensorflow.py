"""TensorFlow reads what we write, we read what it writes, and both parse examples alike."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncdata.errors import StructureError
from asyncdata.formats.compression import decompressor
from asyncdata.formats.tf_example import (
    FixedLenFeature,
    VarLenFeature,
    make_example,
    parse_example,
    parse_single_example,
)
from asyncdata.formats.tfrecord import RecordParser, TFRecordWriter

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

RECORDS = [b"", b"a\0", bytes(range(256)) * 20, *(bytes([i]) * i for i in range(50))]
COMPRESSIONS = pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", exc_type=ImportError)


def parse(path: Path, compression: str) -> list[Any]:
    reader, parser = decompressor(compression), RecordParser(str(path))
    parser.feed(reader.feed(path.read_bytes()))
    found = parser.parse(1000)
    reader.finish()
    parser.finish()
    return found + parser.parse(1)


@COMPRESSIONS
def test_tensorflow_reads_ours(tf: Any, tmp_path: Path, compression: str) -> None:
    with TFRecordWriter(tmp_path / "shard", compression) as writer:
        for record in RECORDS:
            writer.write(record)
    found = tf.data.TFRecordDataset(str(tmp_path / "shard"), compression)
    assert list(found.as_numpy_iterator()) == RECORDS


@COMPRESSIONS
@pytest.mark.parametrize("records", [RECORDS, []], ids=["records", "none"])
def test_we_read_tensorflows(tf: Any, tmp_path: Path, compression: str, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "shard"), compression) as writer:
        for record in records:
            writer.write(record)
    assert parse(tmp_path / "shard", compression) == records


def test_files_are_the_same(tf: Any, tmp_path: Path) -> None:
    for name, make in (("ours", TFRecordWriter), ("theirs", tf.io.TFRecordWriter)):
        with make(str(tmp_path / name)) as writer:
            for record in RECORDS:
                writer.write(record)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


SPEC = {
    "image": ((), bytes, None),
    "label": ((), np.int64, -1),
    "box": ((2, 2), np.float32, None),
    "names": ((2,), bytes, ["x", "y"]),
    "none": ((0,), np.int64, None),
}
EXAMPLES = [
    {"image": b"\0\xff", "label": 3, "box": np.eye(2), "names": ["a", "b"], "none": np.empty(0, int), "tail": [1, 2]},
    {"image": b"", "box": np.ones((2, 2)) / 3, "none": np.empty(0, int)},
]


def both_specs(tf: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    types = {bytes: tf.string, np.int64: tf.int64, np.float32: tf.float32}
    ours: dict[str, Any] = {name: FixedLenFeature(*spec) for name, spec in SPEC.items()}
    theirs = {
        name: tf.io.FixedLenFeature(shape, types[dtype], default) for name, (shape, dtype, default) in SPEC.items()
    }
    return ours | {"tail": VarLenFeature(np.int64)}, theirs | {"tail": tf.io.VarLenFeature(tf.int64)}


@pytest.mark.parametrize("example", EXAMPLES, ids=["full", "defaults"])
def test_single_examples_parse_alike(tf: Any, example: dict[str, Any]) -> None:
    ours, theirs = both_specs(tf)
    serialized = make_example(example)
    found = parse_single_example(serialized, ours)
    expected = tf.io.parse_single_example(serialized, theirs)
    for name, value in found.items():
        reference = expected[name].values.numpy() if name == "tail" else expected[name].numpy()
        assert type(value) is type(reference)
        np.testing.assert_array_equal(value, reference, strict=name != "image")


def test_batches_parse_alike(tf: Any) -> None:
    ours, theirs = both_specs(tf)
    serialized = [make_example(example) for example in EXAMPLES]
    found, expected = parse_example(serialized, ours), tf.io.parse_example(serialized, theirs)
    tails = found.pop("tail")
    assert np.concatenate(tails).tolist() == expected["tail"].values.numpy().tolist()
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name].numpy(), strict=True)


@pytest.mark.parametrize(
    "features", [{}, {"x": []}, {"x": 0.5}, {"x": b"a"}, {"x": [1, 2]}, {"x": np.empty(0, np.int64)}]
)
@pytest.mark.parametrize("default", [None, 7])
def test_same_examples_are_refused(tf: Any, features: dict[str, Any], default: int | None) -> None:
    serialized = make_example(features)
    try:
        expected = tf.io.parse_single_example(serialized, {"x": tf.io.FixedLenFeature((), tf.int64, default)})[
            "x"
        ].numpy()
    except tf.errors.InvalidArgumentError:
        with pytest.raises(StructureError):
            parse_single_example(serialized, {"x": FixedLenFeature((), np.int64, default)})
    else:
        assert parse_single_example(serialized, {"x": FixedLenFeature((), np.int64, default)})["x"] == expected


def test_our_examples_are_tensorflows_byte_for_byte(tf: Any) -> None:
    features = {
        "f": tf.train.Feature(float_list=tf.train.FloatList(value=[0.1, 2])),
        "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1, 2])),
        "b": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])),
        "n": tf.train.Feature(),
    }
    theirs = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)
    assert make_example({"n": [], "f": [0.1, 2], "i": [-1, 2], "b": "a"}) == theirs
