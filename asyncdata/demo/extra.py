"""The packages that the extra `demo` brings, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asyncdata.errors import MissingDependencyError

__all__ = ("require",)


def require(name: str) -> Any:
    """Return the module `name`, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingDependencyError(f"{package} is not installed: pip install 'asyncdata[demo]'") from error
