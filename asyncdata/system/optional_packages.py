"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asyncdata.errors import MissingDependencyError

__all__ = ("require",)


def require(module: str, needed_by: str, install: str = "") -> Any:
    """Return a module, or raise an error that names what needs it and what to `install` with pip.

    A folder of the package's name, such as Ray's own `/tmp/ray` where a program runs in `/tmp`, is not the package.
    """
    package = module.partition(".")[0]
    try:
        found = import_module(module)
        if not hasattr(found, "__path__") or getattr(found, "__file__", None) is not None:
            return found
        cause, problem = None, f"which is not installed (the folder {next(iter(found.__path__))} only has its name)"
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name in (module, package)
        cause, problem = error, "which is not installed" if absent else f"whose import failed ({error})"
    install = install or f"{package}, or 'asyncdata[integrations]'"
    raise MissingDependencyError(f"{needed_by} needs {package}, {problem}: pip install {install}") from cause
