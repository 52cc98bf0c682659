"""StorageOptions: the options of a store. They may hold secrets, which are never shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Self, cast, final

from asyncdata.errors import PlanError
from asyncdata.storage.cache_dir import CacheDir

__all__ = ("NO_OPTIONS", "StorageOptions")


@final
class StorageOptions:
    """The options of a store by name, and its cache folder. `repr` and fingerprints do not include the values."""

    __slots__ = ("cache", "key", "values")

    def __init__(self, values: Mapping[str, Any], cache: CacheDir | None = None) -> None:
        self.values = dict(values)
        self.cache = cache
        described = repr(sorted(self.values.items())).encode(errors="surrogatepass")
        self.key = blake2b(described, digest_size=16).digest()
        """A digest of the options, equal for equal options."""

    @classmethod
    def of(cls, method: str, options: Any, cache_dir: Any = None) -> Self | None:
        """Return the options for `storage_options` and `cache_dir`, `None` for neither; `PlanError` if wrong."""
        cache = cache_of(method, cache_dir)
        if options is None:
            return None if cache is None else cls({}, cache)
        if not isinstance(options, Mapping):
            raise PlanError(
                f"{method}(storage_options=) must be a dict of options by name, as {{'endpoint': ...}}, got "
                f"{type(options).__name__}"
            )
        found = cast("Mapping[Any, Any]", options)
        if wrong := [name for name in found if not isinstance(name, str)]:
            raise PlanError(f"{method}(storage_options=): the names of options must be strings, got {wrong[0]!r}")
        return cls(found, cache) if found or cache is not None else None

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(self.values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageOptions, (self.values, self.cache)


def cache_of(method: str, given: Any) -> CacheDir | None:
    if given is None or isinstance(given, CacheDir):
        return given
    if isinstance(given, (str, os.PathLike)):
        return CacheDir(cast("str | os.PathLike[str]", given))
    raise PlanError(f"{method}(cache_dir=) must be a folder, or CacheDir(folder, max_bytes=...), got {given!r:.80}")


NO_OPTIONS = StorageOptions({})
