"""Finds the store of a path or URL, and opens each store once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from asyncdata.errors import MissingDependencyError, PlanError
from asyncdata.redaction import redacted
from asyncdata.storage.base import AnyPart, Store
from asyncdata.storage.cache_dir import CacheDir
from asyncdata.storage.cached import CachedStore, RemoteFile, Source, blocking
from asyncdata.storage.filesystems import FilesystemStore
from asyncdata.storage.local import LocalStore
from asyncdata.storage.objects import ObjectStore
from asyncdata.storage.options import NO_OPTIONS, StorageOptions
from asyncdata.storage.request_limit import Limit
from asyncdata.storage.servers import endpoint_of, identity_of
from asyncdata.system import forks
from asyncdata.system.optional_packages import require

__all__ = (
    "is_local",
    "is_local_or_cached",
    "is_web",
    "local_path",
    "open_file",
    "read_file",
    "read_head",
    "size_of",
    "store_for",
    "without_query",
)

LOCAL: Final = LocalStore()

SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
"""A URL's scheme; at least two letters, as one letter is a drive."""

SLASH: Final = re.compile("%2f", re.IGNORECASE)
"""An escaped slash."""


OBJECTS: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https"})
"""The schemes that obstore reads."""

WEB: Final = frozenset({"http", "https"})

STORES: Final[dict[tuple[str, bytes], ObjectStore]] = {}
"""The open stores by server, root and options, so that connections are reused."""

FILESYSTEMS: Final[dict[tuple[str, bytes], FilesystemStore]] = {}

SIGNED: Final[dict[tuple[str, bytes], ObjectStore]] = {}
"""The most recent stores of web addresses with a query; each address has its own store."""

MOST_SIGNED: Final = 256

LIMITS: Final[dict[str, Limit]] = {}
"""The limit of each endpoint, shared by all its stores."""

OPENING: Final = forks.lock()


def store_for(url: str | os.PathLike[str], options: StorageOptions | None = None) -> tuple[Store, str]:
    """Return the store that `url` belongs to, and the path in it.

    >>> store_for("file:///data/a%20b.txt")[1]
    '/data/a b.txt'
    """
    path = os.fspath(url)
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a path must be a str or a PathLike of str, got {url!r}")
    found = SCHEME.match(path)
    if found is None:
        return LOCAL, path
    if found[1].lower() == "file":
        return LOCAL, path_of_file_url(path)
    store, inside = remote_store(path, found, options or NO_OPTIONS)
    if options is None or options.cache is None:
        return store, inside
    return CachedStore(store, options.cache), inside


def open_file(url: str, options: StorageOptions | None = None) -> AnyPart:
    """Open a local file, or an object, through its cache if it has one, for reads of parts; may block."""
    store, path = store_for(url, options)
    if isinstance(store, (LocalStore, CachedStore)):
        return store.open(path)
    remote = cast("Source", store)
    return RemoteFile(remote, path, blocking(lambda: remote.now(path)))


def remote_store(path: str, found: re.Match[str], options: StorageOptions) -> tuple[Source, str]:
    """Return the remote store that a URL belongs to, and the path in it."""
    scheme = found[1].lower()
    if scheme in OBJECTS:
        if scheme.startswith("http"):
            return web_address(scheme, path[found.end() :], options)
        host, _, inside = path[found.end() :].partition("/")
        return object_store(f"{scheme}://{host}", options), inside
    if (system := filesystem(scheme, path, options)) is not None:
        return system, path
    raise PlanError(
        f"no store for {found[1]}:// in {without_query(path)!r}: known are plain paths, file://, s3://, gs://, az://, "
        "http(s)://, and what fsspec has a file system for (pip install 'asyncdata[remote]')"
    )


def web_address(scheme: str, rest: str, options: StorageOptions) -> tuple[ObjectStore, str]:
    """Return the store of a web server, and the path in it; an address with a query has its own store."""
    address, sign, query = rest.partition("?")
    host, _, inside = address.partition("/")
    if SLASH.search(inside):
        raise PlanError(
            f"{without_query(f'{scheme}://{rest}')}: its path has %2F, which obstore would request as a slash, so that "
            "it would read another file"
        )
    root = f"{scheme}://{host}{sign}{query}"
    if not sign:
        return object_store(root, options), unquote(inside)
    while len(SIGNED) >= MOST_SIGNED:
        SIGNED.pop(next(iter(SIGNED)), None)
    key = (root, options.key)
    if (known := SIGNED.get(key)) is None:
        known = SIGNED.setdefault(key, ObjectStore(root, options, LIMITS.setdefault(f"{scheme}://{host}", Limit())))
    return known, unquote(inside)


def object_store(root: str, options: StorageOptions) -> ObjectStore:
    """Return the store of a bucket or a web server, opened once for each server that the environment says."""
    key = (identity_of(root, options.values), options.key)
    if (known := STORES.get(key)) is not None:
        return known
    endpoint = endpoint_of(options.values) or root
    with OPENING:
        limit = LIMITS.setdefault(endpoint, Limit())
    return STORES.setdefault(key, ObjectStore(root, options, limit))


def filesystem(scheme: str, url: str, options: StorageOptions) -> FilesystemStore | None:
    """Return fsspec's file system for a scheme, opened once; `None` if it has none, or is not installed."""
    root = f"{scheme}://{url.partition('://')[2].partition('/')[0]}"
    key = (identity_of(root, options.values), options.key)
    if (known := FILESYSTEMS.get(key)) is not None:
        return known
    try:
        protocols = require("fsspec", f"{scheme}://").available_protocols()
    except MissingDependencyError:
        return None
    if scheme not in protocols:
        return None
    return FILESYSTEMS.setdefault(key, FilesystemStore(scheme, root, options))


def is_local_or_cached(url: str, options: StorageOptions | None = None) -> bool:
    """Return whether a path or URL names a local file, or an object that is read through a cache folder."""
    return is_local(url) or (options is not None and options.cache is not None)


def is_local(url: str | os.PathLike[str]) -> bool:
    """Return whether a path or URL names a local file."""
    found = SCHEME.match(os.fspath(url))
    return found is None or found[1].lower() == "file"


def is_web(url: str) -> bool:
    """Return whether a URL is the address of a file on a web server."""
    found = SCHEME.match(url)
    return found is not None and found[1].lower() in WEB


def local_path(url: str | os.PathLike[str], what: str = "saved and cached datasets") -> str:
    """Return the path of a local file, which can be written to; `what` has to be there, for the message."""
    if not isinstance(url, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a path must be a str or a PathLike of str, got {url!r}")
    if not is_local(url):
        raise PlanError(
            f"{what} must be on this machine, got {without_query(os.fspath(url))!r}; write_tfrecords and write_parquet "
            "write to object stores"
        )
    return store_for(url)[1]


def path_of_file_url(url: str) -> str:
    """Return the local path that a file:// URL names."""
    parts = urlsplit(url.replace("?", "%3F").replace("#", "%23"))  # in file names and patterns they mean themselves
    if parts.netloc not in {"", "localhost"}:
        raise PlanError(f"a file:// URL must name a local path, got host {parts.netloc!r} in {url!r}")
    path = unquote(parts.path)
    return path.removeprefix("/") if os.name == "nt" else path


def without_query(url: str) -> str:
    """Return a path or URL for display: without a password, and a web address without its query and user.

    >>> without_query("https://example.org/a.txt?signature=secret")
    'https://example.org/a.txt'
    >>> without_query("sftp://user:secret@example.org/a.txt")
    'sftp://example.org/a.txt'
    """
    found = SCHEME.match(url)
    if found is None:
        return url
    return redacted(url).partition("?")[0] if found[1].lower() in WEB else redacted(url)


def size_of(path: str, options: StorageOptions | None = None) -> int:
    """Return the size of a local file, or of an object that is read through a cache folder; -1 for others."""
    if not is_local_or_cached(path, options):
        return -1
    store, inside = store_for(path, options)
    try:
        return store.head(inside).size
    except OSError:
        return -1


async def read_file(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | CacheDir | None = None,
) -> bytes:
    """Return the content of a file at a path or URL, for use in `map`; see `docs/storage.md`.

    A large object is read in parts, several at once. With a `cache_dir`, a folder or a `CacheDir`, the object is cached
    there and read from there the next time. Raises the errors of `open`, such as `FileNotFoundError`.

    >>> import asyncio, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "greeting.txt")
    >>> _ = path.write_bytes(b"hello")
    >>> asyncio.run(read_file(path))
    b'hello'
    """
    store, path = store_for(url, StorageOptions.of("read_file", storage_options, cache_dir))
    return await store.read(path)


async def read_head(url: str, size: int, options: StorageOptions | None = None) -> bytes:
    """Return the first bytes of a file, fewer if it has no more."""
    store, path = store_for(url, options)
    found = b""
    async with aclosing(store.stream(path, size)) as stream:
        async for data in stream:
            found += data
            if len(found) >= size:
                break
    return found[:size]


def read_at_once(url: Any) -> bytes | None:
    """Return the content of a file that is in the page cache, `None` for others."""
    return LOCAL.quick.read(url, 0, None) if type(url) is str and SCHEME.match(url) is None else None


cast("Any", read_file).at_once = read_at_once
