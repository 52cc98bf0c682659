"""Bytes at a path or URL: the interface that sources read through, and the stores behind it.

A stream belongs to one task at a time, unless a class says otherwise; stores may be used by all threads. Sizes and
offsets are in bytes, times in seconds.
"""

from __future__ import annotations

from asyncdata.storage.append_file import AppendFile
from asyncdata.storage.atomic_write import cache_folder, sync_folder, write_atomically
from asyncdata.storage.base import BLOCK_BYTES, AnyPart, Buffer, Entry, Runner, Store, Stream
from asyncdata.storage.cache_dir import CacheDir
from asyncdata.storage.local import FileStream, LocalStore, RandomFile
from asyncdata.storage.locks import FileLock
from asyncdata.storage.objects import ObjectStore
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.read_ahead import Ahead
from asyncdata.storage.registry import (
    is_local,
    is_local_or_cached,
    is_web,
    local_path,
    open_file,
    read_file,
    read_head,
    size_of,
    store_for,
    without_query,
)
from asyncdata.storage.regular_file import open_regular, read_regular

__all__ = (
    "BLOCK_BYTES",
    "Ahead",
    "AnyPart",
    "AppendFile",
    "Buffer",
    "CacheDir",
    "Entry",
    "FileLock",
    "FileStream",
    "LocalStore",
    "ObjectStore",
    "RandomFile",
    "Runner",
    "StorageOptions",
    "Store",
    "Stream",
    "cache_folder",
    "is_local",
    "is_local_or_cached",
    "is_web",
    "local_path",
    "open_file",
    "open_regular",
    "read_file",
    "read_head",
    "read_regular",
    "size_of",
    "store_for",
    "sync_folder",
    "without_query",
    "write_atomically",
)
