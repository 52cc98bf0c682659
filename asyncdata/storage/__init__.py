"""Bytes at a path or URL: the interface that sources read through, and the stores behind it."""

from __future__ import annotations

from asyncdata.storage.base import InThread as InThread
from asyncdata.storage.base import Store as Store
from asyncdata.storage.local import LocalStore as LocalStore
from asyncdata.storage.registry import read_file as read_file
from asyncdata.storage.registry import store_for as store_for

__all__ = ("InThread", "LocalStore", "Store", "read_file", "store_for")
