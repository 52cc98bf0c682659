"""JSON values as Python's `json` reads and writes them; reading is faster if msgspec is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from asyncdata.errors import MissingDependencyError
from asyncdata.system.optional_packages import require

__all__ = ("NO_JSON", "decoder", "json_bytes", "json_value", "lines_decoder", "read_json")

NO_JSON = (ValueError, RecursionError)
"""The exceptions for invalid JSON and for values that are nested too deep."""


def json_value(data: bytes) -> Any:
    """Parse JSON in UTF-8, including what only `json` accepts: NaN, 1e999, half a surrogate pair."""
    with suppress(*NO_JSON):
        return decoder()(data)
    return read_json(data)


def read_json(data: bytes) -> Any:
    """Parse JSON with Python's `json`."""
    return json.loads(str(data, "utf-8"))


@cache
def decoder() -> Callable[[bytes], Any]:
    """Return the fastest parser available; where it fails, use `read_json`."""
    found = msgspec_json()
    return read_json if found is None else found.Decoder().decode


@cache
def lines_decoder() -> Callable[[bytes], list[Any]] | None:
    """Return a faster parser of values one after another, which need not be on lines of their own, or `None`."""
    found = msgspec_json()
    return None if found is None else found.Decoder().decode_lines


def msgspec_json() -> Any:
    """Return the module `msgspec.json`; `None` without it, and before 0.21, whose errors are no `ValueError`."""
    with suppress(MissingDependencyError):
        if issubclass(require("msgspec", "JSON").DecodeError, ValueError):
            return require("msgspec.json", "JSON")
    return None


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON in UTF-8 on one line, NumPy's as lists and numbers; `ValueError` or `TypeError`."""
    return json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """Return NumPy arrays and numbers as lists and numbers."""
    if isinstance(value, (np.generic, np.ndarray)):
        return cast("NDArray[Any]", value).tolist()
    raise TypeError(f"{type(value).__name__} cannot be represented in JSON")
