"""Modules of this process that other processes would not find, or of whose name they would find another one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

from asyncdata.errors import StageError
from asyncdata.executors.function_wrappers import MAINS

__all__ = ("WithImports", "current_folder", "folders_elsewhere")


def folders_elsewhere() -> dict[str, str]:
    """Return the folders of imported modules and packages that are not in `sys.path` as absolute paths, by their names.

    Such a folder was the current one when the module was imported, as in a notebook, or was only briefly in `sys.path`.
    """
    known = {path for path in sys.path if os.path.isabs(path)}
    found: dict[str, str] = {}
    modules: dict[str, object] = {**sys.modules}
    for name, module in modules.items():
        # by `type`, as libraries of cffi only say that they are modules
        if "." in name or name in MAINS or not issubclass(type(module), ModuleType):
            continue
        names: dict[str, Any] = object.__getattribute__(module, "__dict__")  # so that a lazy module is not imported now
        file = names.get("__file__")
        if isinstance(file, str):
            folder = os.path.dirname(file)
            folder = os.path.dirname(folder) if "__path__" in names else folder
            if folder not in known:
                found[name] = folder
    return found


def current_folder() -> str:
    """Return the current folder, which other processes begin in; `StageError` if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise StageError(
            "no worker process can be used, as the current folder of this process was removed: change to another one "
            "(os.chdir)"
        ) from error


class FolderFinder:
    """Finds top-level modules in the folders where another process has found them."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module is, `None` for those that are found as usual."""
        folder = self.folders.get(name)
        return None if folder is None else PathFinder.find_spec(name, [folder], target)


FINDER: Final = FolderFinder()


def search(folders: dict[str, str]) -> None:
    """Import modules from these folders, from now on."""
    FINDER.folders.update(folders)
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


class Imports:
    """The folders of modules: unpickling this is to search there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return search, (folders_elsewhere(),)


class WithImports:
    """A value whose functions and classes are imported, as it is unpickled, from where this process has imported them.

    It becomes the value itself.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return second, (Imports(), self.value)


def second(_: object, value: Any) -> Any:
    return value
