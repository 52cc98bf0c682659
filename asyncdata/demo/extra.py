"""The packages that the extra `demo` brings, imported when they are needed."""

from __future__ import annotations

from typing import Any

from asyncdata.system import optional_packages

__all__ = ("require",)


def require(name: str) -> Any:
    """Return the module `name`, or say how to install it."""
    return optional_packages.require(name, "the demonstration", "'asyncdata[demo]'")
