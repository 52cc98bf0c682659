"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asyncdata.errors import MissingDependencyError

__all__ = ("require",)


def require(module: str, method: str) -> Any:
    """Return a module, or raise an error that says which method needs it and how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependencyError(
            f"{method} needs {package}, which is not installed: pip install {package}, or 'asyncdata[integrations]'"
        ) from error
