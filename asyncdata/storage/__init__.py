"""Bytes at a path or URL: the interface that sources read through, and the stores behind it."""

from __future__ import annotations

from asyncdata.storage.append_file import AppendFile as AppendFile
from asyncdata.storage.atomic_write import cache_folder as cache_folder
from asyncdata.storage.atomic_write import sync_folder as sync_folder
from asyncdata.storage.atomic_write import write_atomically as write_atomically
from asyncdata.storage.base import BLOCK_BYTES as BLOCK_BYTES
from asyncdata.storage.base import AnyPart as AnyPart
from asyncdata.storage.base import Buffer as Buffer
from asyncdata.storage.base import Cancellable as Cancellable
from asyncdata.storage.base import Entry as Entry
from asyncdata.storage.base import Runner as Runner
from asyncdata.storage.base import Store as Store
from asyncdata.storage.base import Stream as Stream
from asyncdata.storage.cache_dir import CacheDir as CacheDir
from asyncdata.storage.local import FileStream as FileStream
from asyncdata.storage.local import LocalStore as LocalStore
from asyncdata.storage.local import RandomFile as RandomFile
from asyncdata.storage.locks import FileLock as FileLock
from asyncdata.storage.objects import ObjectStore as ObjectStore
from asyncdata.storage.options import StorageOptions as StorageOptions
from asyncdata.storage.registry import is_local as is_local
from asyncdata.storage.registry import is_local_or_cached as is_local_or_cached
from asyncdata.storage.registry import is_web as is_web
from asyncdata.storage.registry import local_path as local_path
from asyncdata.storage.registry import opened as opened
from asyncdata.storage.registry import read_file as read_file
from asyncdata.storage.registry import read_head as read_head
from asyncdata.storage.registry import size_of as size_of
from asyncdata.storage.registry import store_for as store_for
from asyncdata.storage.registry import without_query as without_query
from asyncdata.storage.regular_file import open_regular as open_regular
from asyncdata.storage.regular_file import read_regular as read_regular

__all__ = (
    "BLOCK_BYTES",
    "AnyPart",
    "AppendFile",
    "Buffer",
    "CacheDir",
    "Cancellable",
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
    "open_regular",
    "opened",
    "read_file",
    "read_head",
    "read_regular",
    "size_of",
    "store_for",
    "sync_folder",
    "without_query",
    "write_atomically",
)
