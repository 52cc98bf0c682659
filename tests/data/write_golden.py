"""Writes the golden shards beside it with TensorFlow; the tests read them without.

Run `python tests/data/write_golden.py`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent

EXAMPLES = [
    {
        "bytes": [b"", b"\x00\xff\x00", b"text"],
        "floats": [0.0, -1.5, 3.0e38, 1e-45],
        "ints": [0, 1, -1, 2**63 - 1, -(2**63)],
    },
    {"label": [7], "name": ["Grüße".encode()], "weight": [0.1]},
    {"image": [random.Random(0).randbytes(3000)], "size": [40, 25, 3]},
    {"column": list(range(-300, 300)), "ramp": [i / 7 for i in range(300)]},
    {"nothing": [], "one": [1]},
    {},
]


def feature(values: list) -> tf.train.Feature:
    """Return a feature of the kind that `values` have."""
    match values:
        case [bytes(), *_]:
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        case [float(), *_]:
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        case [int(), *_]:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature()


def readable(value: object) -> object:
    """Return what JSON can hold: bytes as hexadecimal digits, floats as TensorFlow's float32."""
    if isinstance(value, bytes):
        return value.hex()
    return float(tf.constant(value, tf.float32).numpy()) if isinstance(value, float) else value


def main() -> None:
    """Write the shards, and as JSON what they must be read as."""
    records = []
    for example in EXAMPLES:
        features = tf.train.Features(feature={name: feature(values) for name, values in example.items()})
        records.append(tf.train.Example(features=features).SerializeToString(deterministic=True))
    for compression in ("", "GZIP", "ZLIB"):
        path = HERE / f"golden{'.' * bool(compression)}{compression.lower()}.tfrecord"
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in records:
                writer.write(record)
    examples = [{name: list(map(readable, values)) for name, values in example.items()} for example in EXAMPLES]
    golden = {"records": [record.hex() for record in records], "examples": examples}
    (HERE / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
