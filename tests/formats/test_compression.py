from __future__ import annotations

import bz2
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.compression import compressor, decompressor, zstd_module
from asyncdata.formats.tfrecord import RecordParser, frame


def zstd(data: bytes) -> bytes:
    module = zstd_module()
    return module.compress(data, options={module.CompressionParameter.checksum_flag: 1})


COMPRESS = {"GZIP": lambda data: gzip.compress(data, mtime=0), "ZLIB": zlib.compress, "BZ2": bz2.compress, "ZSTD": zstd}
RECORDS = [b"", b"a record", b"a record, and another"]


def expand(compression: str, data: bytes, block: int = 1 << 20) -> bytes:
    reader = decompressor(compression, "shard")
    pieces = [bytes(reader.feed(data[start : start + block])) for start in range(0, len(data), block)]
    reader.finish()
    return b"".join(pieces)


def records(compression: str, data: bytes, block: int) -> list[bytes | DataLossError]:
    """What a reader of records finds: the first error that ends the file is the last thing."""
    reader, parser = decompressor(compression, "shard"), RecordParser("shard", compressed=True)
    found: list[bytes | DataLossError] = []
    try:
        for start in range(0, len(data), block):
            parser.feed(reader.feed(data[start : start + block]))
            found += parser.parse(100)
        reader.finish()
    except DataLossError as error:
        return found if parser.ended else [*found, error]
    parser.finish()
    return found + parser.parse(100)


compressions = pytest.mark.parametrize(
    "compression", ["GZIP", "ZLIB", "BZ2", pytest.param("ZSTD", marks=pytest.mark.formats)]
)
blocks = pytest.mark.parametrize("block", [1, 7, 1 << 20])


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@given(data=st.lists(st.binary()), block=st.integers(1, 50))
def test_there_and_back(compression: str, data: list[bytes], block: int) -> None:
    writer = compressor(compression)
    packed = b"".join([*map(writer.feed, data), writer.finish()])
    assert expand(compression, packed, block) == b"".join(data)


@pytest.mark.parametrize("compression", [None, ""])
def test_no_compression_changes_and_copies_nothing(compression: str | None) -> None:
    data = memoryview(b"data")
    reader = decompressor(compression)
    assert reader.feed(data) is data
    reader.finish()
    writer = compressor(compression)
    assert (writer.feed(b"data"), writer.flush(), writer.finish()) == (b"data", b"", b"")


@pytest.mark.parametrize("make", [compressor, decompressor])
@pytest.mark.parametrize("compression", ["gzip", "BROTLI"])
def test_unknown_type(make, compression: str) -> None:
    with pytest.raises(PlanError, match='must be None, "", "GZIP"(,| or) "ZLIB"(, "BZ2" or "ZSTD")?, got'):
        make(compression)


@compressions
@blocks
@pytest.mark.parametrize("padding", [0, 1, 20])
def test_several_members_and_padding(compression: str, block: int, padding: int) -> None:
    packed = b"".join(COMPRESS[compression](data) + bytes(padding) for data in (b"one", b"", b"two", b"three"))
    assert expand(compression, packed, block) == b"onetwothree"


@compressions
def test_empty_file(compression: str) -> None:
    assert expand(compression, b"") == b""


@compressions
@blocks
def test_what_is_not_compressed(compression: str, block: int) -> None:
    for data in (frame(b"record"), bytes(100)):
        with pytest.raises(DataLossError, match="shard: the compressed stream is corrupt"):
            expand(compression, data, block)
            decompressor(compression, "shard").finish()


@compressions
@blocks
def test_rubbish_at_the_end_comes_after_everything_before(compression: str, block: int) -> None:
    reader = decompressor(compression, "shard")
    packed = COMPRESS[compression](b"data") + b"rubbish"
    assert bytes(reader.feed(packed)) == b"data"
    for _ in range(2):
        with pytest.raises(DataLossError, match="corrupt"):
            reader.feed(b"")
    with pytest.raises(DataLossError, match="corrupt"):
        reader.finish()


@compressions
@blocks
def test_truncated_at_every_byte(compression: str, block: int) -> None:
    packed = COMPRESS[compression](b"".join(map(frame, RECORDS)))
    for end in range(1, len(packed)):
        *found, error = records(compression, packed[:end], block)
        assert found == RECORDS[: len(found)]
        assert isinstance(error, DataLossError)
        assert "shard: the compressed stream is cut short" in str(error)


@compressions
@blocks
def test_every_byte_corrupted_gives_no_wrong_record(compression: str, block: int) -> None:
    packed = COMPRESS[compression](b"".join(map(frame, RECORDS)))
    unprotected = range(4, 10) if compression == "GZIP" else range(0)  # time and origin, which change nothing
    for at in range(len(packed)):
        corrupt = bytearray(packed)
        corrupt[at] ^= 0xFF
        found = records(compression, bytes(corrupt), block)
        if at in unprotected:
            assert found == RECORDS
            continue
        if compression != "BZ2" or found != RECORDS:  # some of its bits mean nothing
            assert any(isinstance(record, DataLossError) for record in found)
        pairs = zip(found, RECORDS, strict=False)
        assert all(record == written for record, written in pairs if not isinstance(record, DataLossError))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_records_before_a_corruption_are_found_in_the_block_of_the_corruption(compression: str) -> None:
    whole = b"".join(map(frame, RECORDS))
    writer = compressor(compression)
    packed = writer.feed(whole) + writer.flush()
    found = records(compression, packed + b"\xff\xff\xff\xff", 1 << 20)
    assert found[:-1] == RECORDS
    assert isinstance(found[-1], DataLossError)
