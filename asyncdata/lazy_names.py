"""Names of a package whose modules are imported when a name is asked for first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ("importer",)

Importer = tuple[Callable[[str], Any], Callable[[], list[str]]]


def importer(package: str, modules: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()) -> Importer:
    """Return `__getattr__` and `__dir__` of a package, from the names that each module of it defines.

    A module is imported when a name of it is asked for first; from then on the package has the name. `submodules` are
    names themselves.
    """
    own = vars(sys.modules[package])

    def load_name(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        module = next((module for module, names in modules.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        own[name] = value = getattr(import_module(f"{package}.{module}"), name)
        return value

    def public_names() -> list[str]:
        return sorted({*own, *own["__all__"]})

    return load_name, public_names
