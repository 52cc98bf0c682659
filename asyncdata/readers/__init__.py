"""The dataset classes that read files, one module for each."""

from __future__ import annotations

from asyncdata.readers.array_record import ArrayRecordDataset
from asyncdata.readers.arrow import ArrowDataset
from asyncdata.readers.energon import EnergonDataset
from asyncdata.readers.fixed_length_record import FixedLengthRecordDataset
from asyncdata.readers.image_folder import ImageFolderDataset
from asyncdata.readers.json_lines import JsonLinesDataset
from asyncdata.readers.lance import LanceDataset
from asyncdata.readers.lerobot import LeRobotDataset
from asyncdata.readers.litdata import LitDataset
from asyncdata.readers.mds import MdsDataset
from asyncdata.readers.npy import NpyDataset
from asyncdata.readers.parquet import ParquetDataset
from asyncdata.readers.safetensors import SafetensorsDataset
from asyncdata.readers.text_line import TextLineDataset
from asyncdata.readers.tfds import TfdsDataset
from asyncdata.readers.tfrecord import TFRecordDataset
from asyncdata.readers.tokens import TokenDataset
from asyncdata.readers.webdataset import WebDataset
from asyncdata.readers.zarr import ZarrDataset

__all__ = (
    "ArrayRecordDataset",
    "ArrowDataset",
    "EnergonDataset",
    "FixedLengthRecordDataset",
    "ImageFolderDataset",
    "JsonLinesDataset",
    "LanceDataset",
    "LeRobotDataset",
    "LitDataset",
    "MdsDataset",
    "NpyDataset",
    "ParquetDataset",
    "SafetensorsDataset",
    "TFRecordDataset",
    "TextLineDataset",
    "TfdsDataset",
    "TokenDataset",
    "WebDataset",
    "ZarrDataset",
)
