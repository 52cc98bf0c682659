"""The formats that datasets are written in: the names of files, and the layout of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from asyncdata.errors import PlanError, StructureError
from asyncdata.formats.arrow_columns import arrow
from asyncdata.formats.json_values import json_bytes
from asyncdata.formats.parquet_encoder import ParquetEncoder, RowTypes
from asyncdata.formats.sample_encoder import SampleEncoder
from asyncdata.formats.tfrecord import frame

__all__ = ("Encoder", "JsonLines", "ParquetRows", "Samples", "ShardFormat", "TFRecords")

CODECS: Final = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4")


class Encoder(Protocol):
    """Elements of one file in, its bytes out."""

    def add(self, element: Any) -> bytes:
        """Return the bytes that are ready once there is one more element; `StructureError` if it is none for it."""
        ...

    def finish(self) -> bytes:
        """Return the rest of the file."""
        ...


class ShardFormat:
    """A format, for the files of one dataset."""

    method: ClassVar[str]
    extension: ClassVar[str]

    layout: tuple[str, ...] = ()
    """The arguments that change the files."""

    @property
    def memo(self) -> str:
        """The properties of the first files that later ones need."""
        return ""

    def resume(self, memo: str) -> None:
        """Take over the state that was saved when writing was stopped."""

    def encoder(self, before: int) -> Encoder:
        """Return the writer of the next file, which follows `before` elements."""
        raise NotImplementedError


class Each:
    """Elements in a file one after another, each by itself."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    def add(self, element: Any) -> bytes:
        return self._encode(element)

    def finish(self) -> bytes:
        """Return nothing: there is no mark of the end."""
        return b""


class TFRecords(ShardFormat):
    """Elements that are bytes as TFRecord files have them."""

    method = "write_tfrecords"
    extension = ".tfrecord"

    def encoder(self, before: int) -> Each:
        return Each(framed)


class JsonLines(ShardFormat):
    """JSON values, a line for each element."""

    method = "write_jsonl"
    extension = ".jsonl"

    def encoder(self, before: int) -> Each:
        return Each(json_line)


class Samples(ShardFormat):
    """Samples in tar archives."""

    method = "write_webdataset"
    extension = ".tar"

    def encoder(self, before: int) -> SampleEncoder:
        return SampleEncoder(before)


class ParquetRows(ShardFormat):
    """Rows in Parquet files, all of one schema: the given one, or that of the first row group."""

    method = "write_parquet"
    extension = ".parquet"

    def __init__(self, schema: Any, compression: str | None, group_bytes: int) -> None:
        pa = arrow("pyarrow", self.method)  # raises where it is missing
        if schema is not None and not isinstance(schema, pa.Schema):
            raise PlanError(f"{self.method}(schema=) must be a pyarrow.Schema, got {schema!r:.80}")
        codec = "NONE" if compression == "" else compression or "SNAPPY"
        if codec != "NONE" and codec not in CODECS:
            raise PlanError(f"{self.method}(compression_type=) must be one of {CODECS}, or '' for none, got {codec!r}")
        self._codec = codec
        self._group_bytes = group_bytes
        self._columns = RowTypes(schema)
        self.layout = (codec, "" if schema is None else self.memo)

    @property
    def memo(self) -> str:
        return self._columns.text()

    def resume(self, memo: str) -> None:
        self._columns = RowTypes.from_text(memo)

    def encoder(self, before: int) -> ParquetEncoder:
        return ParquetEncoder(self._columns, self._codec, self._group_bytes, before)


def framed(element: Any) -> bytes:
    """Return a record in the layout of a TFRecord file."""
    if not isinstance(element, bytes):
        raise StructureError(
            f"write_tfrecords needs elements that are bytes, got {type(element).__name__}; make_example makes bytes "
            "from a dict of features, and save() accepts elements of any kind"
        )
    return frame(element)


def json_line(element: Any) -> bytes:
    try:
        return json_bytes(element) + b"\n"
    except (TypeError, ValueError) as error:
        raise StructureError(f"write_jsonl: {error}: {element!r:.80}") from error
