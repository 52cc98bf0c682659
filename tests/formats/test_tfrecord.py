from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import ClosedError, DataLossError, PlanError
from asyncdata.formats.compression import decompressor
from asyncdata.formats.tfrecord import (
    MANY,
    RecordParser,
    TFRecordWriter,
    crc32c,
    crcs_of_lengths,
    frame,
    frames,
    frames_of_one_length,
    masked_crc,
)

FEW_RECORDS = [b"", b"a", b"record", b"0123456789"]
MANY_RECORDS = [bytes([i]) * (i % 5) for i in range(MANY + 6)]


def shard(records: list[bytes]) -> bytes:
    return b"".join(map(frame, records))


def parse(data: bytes, *, block: int = 1 << 20, limit: int = 1 << 20) -> list[bytes | DataLossError]:
    """Everything in `data`, which comes in blocks, in a buffer that is used again for each."""
    parser = RecordParser("shard")
    buffer = bytearray(block)
    found: list[bytes | DataLossError] = []
    for start in range(0, len(data), block):
        size = len(data[start : start + block])
        buffer[:size] = data[start : start + block]
        parser.feed(memoryview(buffer)[:size])
        found += drained(parser, limit)
    parser.finish()
    found += drained(parser, limit)
    assert parser.ended
    assert parser.parse(1) == []
    return found


def drained(parser: RecordParser, limit: int) -> list[bytes | DataLossError]:
    found: list[bytes | DataLossError] = []
    while records := parser.parse(limit):
        assert len(records) <= limit
        found += records
    return found


def offsets(records: list[bytes]) -> list[int]:
    return np.cumsum([0, *(len(frame(record)) for record in records)]).tolist()


class TestFrame:
    def test_masked_crc_of_the_check_string(self) -> None:
        crc = 0xE3069283  # of CRC32C
        assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32

    @given(st.lists(st.binary(max_size=40), max_size=60))
    def test_many_frames_are_frames_one_after_the_other(self, records: list[bytes]) -> None:
        assert frames(records) == b"".join(map(frame, records))

    @pytest.mark.parametrize("length", [0, 1, 300, 100_000])
    def test_frames_of_one_length(self, length: int) -> None:
        rows = np.random.default_rng(1).integers(0, 256, (5, length), np.uint8)

        def fill(out: np.ndarray) -> None:
            out[:] = rows

        assert bytes(frames_of_one_length(5, length, fill)) == b"".join(frame(row.tobytes()) for row in rows)

    def test_frame_is_length_crc_record_crc(self) -> None:
        length = (6).to_bytes(8, "little")
        crcs = [masked_crc(data).to_bytes(4, "little") for data in (length, b"record")]
        assert frame(b"record") == length + crcs[0] + b"record" + crcs[1]

    @given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
    def test_crcs_of_lengths_at_once(self, lengths: list[int]) -> None:
        one_by_one = [crc32c(length.to_bytes(8, "little")) for length in lengths]
        assert crcs_of_lengths(np.array(lengths, np.int64)).tolist() == one_by_one


class TestRecordParser:
    @given(
        st.lists(st.binary(max_size=60), max_size=80),
        st.integers(1, 500),
        st.integers(1, 100),
    )
    def test_records_whatever_the_blocks_and_limits(self, records: list[bytes], block: int, limit: int) -> None:
        assert parse(shard(records), block=block, limit=limit) == records

    @given(st.lists(st.lists(st.binary(max_size=40), max_size=6), max_size=6), st.integers(1, 40))
    def test_fed_several_times_before_parsing(self, parts: list[list[bytes]], cut: int) -> None:
        parser = RecordParser("shard")
        for part in parts:
            data = shard(part)
            parser.feed(data[:cut])
            parser.feed(data[cut:])
        parser.finish()
        assert drained(parser, 1000) == [record for part in parts for record in part]

    @given(st.lists(st.binary(max_size=40), max_size=12), st.data())
    def test_fed_and_parsed_at_any_times(self, records: list[bytes], data: st.DataObject) -> None:
        parser, rest = RecordParser("shard"), shard(records)
        found: list[bytes | DataLossError] = []
        while rest:
            size = data.draw(st.integers(1, 60))
            parser.feed(rest[:size])
            rest = rest[size:]
            found += parser.parse(data.draw(st.integers(1, 3)))
        parser.finish()
        assert found + drained(parser, 2) == records

    def test_record_larger_than_blocks(self) -> None:
        records = [b"a", os.urandom(100_000), b"z"]
        assert parse(shard(records), block=1000) == records

    def test_nothing(self) -> None:
        assert parse(b"") == []

    def test_needs_more_is_not_the_end(self) -> None:
        parser = RecordParser("shard")
        parser.feed(frame(b"record")[:-1])
        assert parser.parse(1) == []
        assert not parser.ended
        parser.feed(frame(b"record")[-1:])
        assert parser.parse(1) == [b"record"]
        assert not parser.ended
        parser.finish()
        assert parser.ended

    def test_records_are_bytes(self) -> None:
        assert {type(record) for record in parse(shard(MANY_RECORDS), block=100)} == {bytes}

    @pytest.mark.parametrize("block", [7, 50, 1 << 20])
    @pytest.mark.parametrize("records", [FEW_RECORDS, MANY_RECORDS], ids=["few", "many"])
    def test_truncated_at_every_byte(self, records: list[bytes], block: int) -> None:
        data, starts = shard(records), offsets(records)
        for end in range(len(data)):
            *found, last = parse(data[:end], block=block) or [None]
            whole = sum(start <= end for start in starts) - 1
            if end in starts:
                assert (found, last) == (records[: end and whole - 1], records[whole - 1] if end else None)
            else:
                assert found == records[:whole]
                assert isinstance(last, DataLossError)
                where = f"shard: the record at byte {starts[whole]} is cut short"
                assert f"{where}: the file ends at byte {end}" in str(last)

    @pytest.mark.parametrize("block", [7, 1 << 20])
    @pytest.mark.parametrize("records", [FEW_RECORDS, MANY_RECORDS], ids=["few", "many"])
    @pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
    def test_every_byte_corrupted(self, records: list[bytes], block: int, change: int) -> None:
        data, starts = shard(records), offsets(records)
        for at in range(len(data)):
            corrupt = bytearray(data)
            corrupt[at] ^= change
            hit = sum(start <= at for start in starts) - 1
            found = parse(bytes(corrupt), block=block)
            error = found.pop(hit)
            assert isinstance(error, DataLossError)
            assert f"shard: the record at byte {starts[hit]} " in str(error)
            in_length = at - starts[hit] < 12
            assert found == records[:hit] + ([] if in_length else records[hit + 1 :])

    def test_wrong_length_is_found_before_its_bytes_are_there(self) -> None:
        parser = RecordParser("shard")
        parser.feed((1 << 60).to_bytes(8, "little") + bytes(4))
        (error,) = parser.parse(5)
        assert "byte 0 has a corrupt length" in str(error)
        assert parser.ended
        parser.feed(frame(b"record"))
        assert parser.parse(5) == []

    def test_long_record_with_a_right_length_is_waited_for(self) -> None:
        length = (1 << 60).to_bytes(8, "little")
        parser = RecordParser("shard", most=1 << 60)
        parser.feed(length + masked_crc(length).to_bytes(4, "little"))
        assert parser.parse(5) == []
        assert not parser.ended

    def test_offsets_in_compressed_files_say_so(self) -> None:
        parser = RecordParser("shard", compressed=True)
        parser.feed(frame(b"record")[:-1])
        parser.finish()
        (error,) = parser.parse(5)
        assert "at uncompressed byte 0" in str(error)


class TestWriter:
    @pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
    def test_writes_what_the_parser_reads(self, tmp_path: Path, compression: str | None) -> None:
        with TFRecordWriter(tmp_path / "shard", compression) as writer:
            for record in MANY_RECORDS:
                writer.write(record)
        data = (tmp_path / "shard").read_bytes()
        assert parse(bytes(decompressor(compression).feed(data))) == MANY_RECORDS

    @pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
    def test_options_are_a_compression_or_have_one(self, tmp_path: Path, compression: str | None) -> None:
        options = SimpleNamespace(compression_type=compression)
        path = tmp_path / "shard"
        for writer in (
            TFRecordWriter(path, options=compression),
            TFRecordWriter(path, options=options),
            TFRecordWriter(path, options),
        ):
            with writer:
                writer.write(b"record")
            assert parse(bytes(decompressor(compression).feed(path.read_bytes()))) == [b"record"]

    def test_options_that_are_none_are_refused_before_the_file_is_made(self, tmp_path: Path) -> None:
        path = tmp_path / "shard"
        with pytest.raises(PlanError, match="compression_type must be"):
            TFRecordWriter(path, options=SimpleNamespace(compression_type="ZIP"))
        with pytest.raises(PlanError, match="compression_type must be"):
            TFRecordWriter(path, options={"compression_type": "GZIP"})
        with pytest.raises(PlanError, match=r"this machine, got s3://; Dataset\.write_tfrecords"):
            TFRecordWriter("s3://bucket/shard")
        with pytest.raises(PlanError, match="either compression_type or options"):
            TFRecordWriter(path, "GZIP", options="GZIP")
        assert not path.exists()

    @pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
    def test_flush_lets_a_reader_see_everything(self, tmp_path: Path, compression: str | None) -> None:
        with TFRecordWriter(str(tmp_path / "shard"), compression) as writer:
            writer.write(b"record")
            writer.flush()
            data = (tmp_path / "shard").read_bytes()
            assert decompressor(compression).feed(data) == frame(b"record")

    @pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
    def test_left_by_an_exception_it_finishes_its_file(self, tmp_path: Path, compression: str | None) -> None:
        with pytest.raises(KeyError), TFRecordWriter(tmp_path / "shard", compression) as writer:
            writer.write(b"record")
            raise KeyError
        expand = decompressor(compression)
        assert expand.feed((tmp_path / "shard").read_bytes()) == frame(b"record")
        expand.finish()

    def test_other_buffers_than_bytes(self, tmp_path: Path) -> None:
        with TFRecordWriter(tmp_path / "shard") as writer:
            writer.write(bytearray(b"a"))
            writer.write(memoryview(b"b"))
        assert parse((tmp_path / "shard").read_bytes()) == [b"a", b"b"]

    @pytest.mark.parametrize("record", ["text", 5, None])
    def test_records_must_be_bytes(self, tmp_path: Path, record: object) -> None:
        with TFRecordWriter(tmp_path / "shard") as writer, pytest.raises(TypeError, match="must be bytes, got"):
            writer.write(record)  # type: ignore[arg-type]

    def test_closed_twice_and_used_after(self, tmp_path: Path) -> None:
        writer = TFRecordWriter(tmp_path / "shard")
        writer.close()
        writer.close()
        with pytest.raises(ClosedError, match="shard"):
            writer.write(b"record")
        with pytest.raises(ClosedError, match="shard"):
            writer.flush()

    def test_unknown_compression_writes_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match="'BROTLI'"):
            TFRecordWriter(tmp_path / "shard", "BROTLI")
        assert not (tmp_path / "shard").exists()


LENGTHS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2 * MANY)), max_size=4)


@given(
    runs=LENGTHS, limit=st.integers(1, 3 * MANY), block=st.integers(20, 2000), damage=st.none() | st.integers(0, 10**6)
)
def test_runs_of_records_of_one_length(runs: list[tuple[int, int]], limit: int, block: int, damage: int | None) -> None:
    """Those of one length are taken out together, and each is what it is alone, damaged or not."""
    records = [bytes([number % 251]) * length for length, count in runs for number in range(count)]
    data = bytearray(shard(records))
    bad = None
    if records and damage is not None:
        bad = damage % len(records)
        data[offsets(records)[bad] + 12 + len(records[bad])] ^= 1  # in the checksum of what is in it
    found = parse(bytes(data), block=block, limit=limit)
    assert [item if isinstance(item, bytes) else None for item in found] == [
        None if number == bad else record for number, record in enumerate(records)
    ]


def test_a_corrupt_length_in_a_run_loses_what_follows_it() -> None:
    records = [b"12345678"] * (2 * MANY)
    data = bytearray(shard(records))
    at = offsets(records)[MANY + 3]
    data[at + 8] ^= 1  # the checksum of the length
    found = parse(bytes(data))
    assert found[:-1] == records[: MANY + 3]
    assert f"byte {at} has a corrupt length" in str(found[-1])
