"""The readers of files that are datasets of their own, one file for each."""

from __future__ import annotations

from asyncdata.readers.fixed_length_record import FixedLengthRecordDataset
from asyncdata.readers.json_lines import JsonLinesDataset
from asyncdata.readers.parquet import ParquetDataset
from asyncdata.readers.text_line import TextLineDataset
from asyncdata.readers.tfrecord import TFRecordDataset
from asyncdata.readers.webdataset import WebDataset

__all__ = (
    "FixedLengthRecordDataset",
    "JsonLinesDataset",
    "ParquetDataset",
    "TFRecordDataset",
    "TextLineDataset",
    "WebDataset",
)
