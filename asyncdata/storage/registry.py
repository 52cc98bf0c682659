"""Which store a path or URL belongs to."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from asyncdata.errors import PlanError
from asyncdata.storage.local import LocalStore

if TYPE_CHECKING:
    from asyncdata.storage.base import Store

__all__ = ("local_path", "read_file", "size_of", "store_for")

LOCAL: Final = LocalStore()

SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
"""A URL's scheme; two letters at least, as one is a drive."""


def store_for(url: str | os.PathLike[str]) -> tuple[Store, str]:
    """Return the store that `url` belongs to, and the path in it.

    >>> store_for("file:///data/a%20b.txt")[1]
    '/data/a b.txt'
    """
    path = os.fspath(url)
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a path must be a str or a PathLike of str, got {url!r}")
    scheme = SCHEME.match(path)
    if scheme is None:
        return LOCAL, path
    if scheme[1].lower() == "file":
        return LOCAL, path_of_file_url(path)
    raise PlanError(f"no store for {scheme[1]}:// in {path!r}: known are plain paths and file://")


def local_path(url: str | os.PathLike[str]) -> str:
    """Return the path of a file on this machine, which can be written to."""
    if not isinstance(url, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a path must be a str or a PathLike of str, got {url!r}")
    return store_for(url)[1]


def path_of_file_url(url: str) -> str:
    """Return the local path that a file:// URL names."""
    parts = urlsplit(url.replace("?", "%3F").replace("#", "%23"))  # in file names and patterns they mean themselves
    if parts.netloc not in {"", "localhost"}:
        raise PlanError(f"a file:// URL names a path of this machine, got host {parts.netloc!r} in {url!r}")
    path = unquote(parts.path)
    return path.removeprefix("/") if os.name == "nt" else path


def size_of(path: str) -> int:
    """Return the size of a file, -1 if it has none."""
    store, inside = store_for(path)
    try:
        return store.size(inside)
    except OSError:
        return -1


async def read_file(url: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, for use in `map`.

    >>> import asyncio, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "greeting.txt")
    >>> _ = path.write_bytes(b"hello")
    >>> asyncio.run(read_file(path))
    b'hello'
    """
    store, path = store_for(url)
    return await store.read(path)
