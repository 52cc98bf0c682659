"""Modules of this process that other processes would not find, or of whose name they would find another one."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

from asyncdata.errors import StageError
from asyncdata.executors.function_wrappers import MAINS

__all__ = ("WithImports", "current_folder", "folders_elsewhere", "installed_modules")


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


NAMED: Final = re.compile(rb"\x8c(.)([\w.]+)", re.DOTALL)
"""A short string in a pickle, its length and the text, such as the name of a module."""
SEARCHED: Final = 1 << 18
"""So many bytes at each end of a pickle are searched: what is in between are elements of the kinds that began it."""


def installed_modules(pickled: bytes) -> list[str]:
    """Return the modules of installed packages that unpickling imports, also by modules of the program, in the order in
    which this process has imported them. One too many, which a string only seems to name, is one that is here, too."""
    ends = pickled[:SEARCHED], pickled[max(SEARCHED, len(pickled) - SEARCHED) :]
    waiting = {text[: length[0]].decode() for end in ends for length, text in NAMED.findall(end)}
    modules: dict[str, object] = {**sys.modules}
    known, found = set[str](), set[str]()
    while waiting:
        known.add(name := waiting.pop())
        if name in MAINS or name.partition(".")[0] == __name__.partition(".")[0]:
            continue
        if is_installed(names := names_in(modules.get(name))):
            found.add(name)
        elif not is_installed(names, (os.path.dirname(os.__file__),)):
            waiting |= imported_by(names) - known
    return [name for name in modules if name in found]


def names_in(module: object) -> dict[str, Any]:
    """Return the names of a module, which is not imported now if it is a lazy one; none of what is no module."""
    return object.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}


def imported_by(names: dict[str, Any]) -> set[str]:
    """Return the modules that a module with these names has imported, or from which it has functions and classes."""
    found: set[Any] = {value.__name__ for value in names.values() if type(value) is ModuleType}
    kinds = (type, FunctionType, BuiltinFunctionType)
    found |= {value.__module__ for value in names.values() if issubclass(type(value), kinds)}
    return {name for name in found if isinstance(name, str)}  # of classes with a property of that name it is none


def is_installed(names: dict[str, Any], folders: tuple[str, ...] | None = None) -> bool:
    """Return whether a module with these names lies in the folders of installed packages, or in others."""
    file = names.get("__file__")
    return isinstance(file, str) and file.startswith(folders or installed_in())


@cache
def installed_in() -> tuple[str, ...]:
    """Return the folders of installed packages, in which other processes find the same ones."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return tuple([os.path.join(folder, "") for folder in folders])
