"""What a store is opened with, secrets among it, which nothing tells."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Self, cast, final

from asyncdata.errors import PlanError

__all__ = ("NO_OPTIONS", "StorageOptions")


@final
class StorageOptions:
    """The options of a store by name. Neither its text nor a fingerprint has any of their values."""

    __slots__ = ("key", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        told = repr(sorted(self.values.items())).encode(errors="surrogatepass")
        self.key = blake2b(told, digest_size=16).digest()
        """What is the same for the same options."""

    @classmethod
    def of(cls, method: str, options: Any) -> Self | None:
        """Return what a user gave as `storage_options`, `None` for nothing; `PlanError` if it is no mapping."""
        if options is None:
            return None
        if not isinstance(options, Mapping):
            raise PlanError(
                f"{method}(storage_options=) is a dict with names of options, as {{'endpoint': ...}}, got "
                f"{type(options).__name__}"
            )
        found = cast("Mapping[Any, Any]", options)
        if wrong := [name for name in found if not isinstance(name, str)]:
            raise PlanError(f"{method}(storage_options=): names of options are strings, got {wrong[0]!r}")
        return cls(found) if found else None

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(self.values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageOptions, (self.values,)


NO_OPTIONS = StorageOptions({})
