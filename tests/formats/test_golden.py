"""Shards that TensorFlow wrote (tests/data/write_golden.py), read bit for bit without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncdata.formats.compression import decompressor
from asyncdata.formats.tf_example import decode_example, make_example
from asyncdata.formats.tfrecord import RecordParser, frame

DATA = Path(__file__).parents[1] / "data"
GOLDEN = json.loads((DATA / "golden.json").read_text())
RECORDS = [bytes.fromhex(record) for record in GOLDEN["records"]]
SHARDS = {None: "golden.tfrecord", "GZIP": "golden.gzip.tfrecord", "ZLIB": "golden.zlib.tfrecord"}


def values(value: list[Any]) -> list[Any]:
    return [bytes.fromhex(item) if isinstance(item, str) else item for item in value]


@pytest.mark.parametrize("compression", SHARDS)
@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_shard(compression: str | None, block: int) -> None:
    data = (DATA / SHARDS[compression]).read_bytes()
    reader, parser = decompressor(compression), RecordParser("golden")
    found = []
    for start in range(0, len(data), block):
        parser.feed(reader.feed(data[start : start + block]))
        found += parser.parse(100)
    reader.finish()
    parser.finish()
    assert found + parser.parse(100) == RECORDS
    assert parser.ended


def test_frames() -> None:
    assert b"".join(map(frame, RECORDS)) == (DATA / SHARDS[None]).read_bytes()


@pytest.mark.parametrize("i", range(len(RECORDS)))
def test_examples_are_decoded(i: int) -> None:
    decoded = decode_example(RECORDS[i])
    assert {name: array.tolist() for name, array in decoded.items()} == {
        name: values(value) for name, value in GOLDEN["examples"][i].items()
    }


@pytest.mark.parametrize("i", range(len(RECORDS)))
def test_examples_are_made_byte_for_byte(i: int) -> None:
    assert make_example({name: values(value) for name, value in GOLDEN["examples"][i].items()}) == RECORDS[i]


def test_kinds() -> None:
    decoded = decode_example(RECORDS[0])
    assert {name: array.dtype for name, array in decoded.items()} == {
        "bytes": np.dtype(object),
        "floats": np.dtype(np.float32),
        "ints": np.dtype(np.int64),
    }
