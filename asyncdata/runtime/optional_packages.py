"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asyncdata.errors import MissingDependencyError

__all__ = ("require",)


def require(module: str, needed_by: str, install: str = "") -> Any:
    """Return a module, or raise an error that says what needs it and what to `install` with pip."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and error.name in (module, package)
        problem = "which is not installed" if absent else f"whose import failed ({error})"
        install = install or f"{package}, or 'asyncdata[integrations]'"
        raise MissingDependencyError(f"{needed_by} needs {package}, {problem}: pip install {install}") from error
