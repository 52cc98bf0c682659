"""ProcessSettings: what a program has set in its process, which a worker that PyTorch forks would have, too."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import PurePath
from sysconfig import get_paths
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from asyncdata.executors.function_wrappers import MAINS
from asyncdata.torch.generators import Snapshot, generators_in
from asyncdata.torch.internals import collate_functions, take_collate_functions, torch

__all__ = ("Modes", "ProcessSettings", "is_own")

log = logging.getLogger("asyncdata")

OF_LIBRARIES: Final[dict[tuple[str, str], Any]] = {
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"): False,
    ("PIL.Image", "MAX_IMAGE_PIXELS"): 1024 * 1024 * 1024 // 4 // 3,
}
"""Settings of libraries that programs change, by module and name, and what they are if they do not."""

OF_WORKERS: Final = "_NUM_THREADS"
"""How names of variables of the environment end that workers have of their own."""

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), PurePath, torch.dtype, torch.device)
COLLECTIONS: Final = (list, tuple, set, frozenset)
NAMESPACES: Final = (Namespace, SimpleNamespace)

STANDARD_LIBRARY: Final = tuple({os.path.join(get_paths()[name], "") for name in ("stdlib", "platstdlib")})

MOST: Final = 1000
"""A global with more values than this is data, not a setting."""


class Modes:
    """The modes of PyTorch and NumPy in this thread, in which several loaders may want to be different."""

    def __init__(self) -> None:
        self.dtype = torch.get_default_dtype()
        self.gradients: bool = torch.is_grad_enabled()
        self.deterministic: bool = torch.are_deterministic_algorithms_enabled()
        self.errors = np.geterr()

    def set(self) -> None:
        """Set the modes of this thread to these."""
        np.seterr(**cast("Any", self.errors))
        torch.set_default_dtype(self.dtype)
        torch.set_grad_enabled(self.gradients)
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:  # setting it imports a compiler
            torch.use_deterministic_algorithms(self.deterministic)


class ProcessSettings:
    """The settings of this process. Where it is unpickled, it sets the environment and `sys.path` at once, before the
    modules are imported that the rest needs; `apply` sets the others, but for `modes`."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.environment = {name: value for name, value in os.environ.items() if not name.endswith(OF_WORKERS)}
        self.path = [*sys.path]
        self.modes = Modes()
        self.collate = collate_functions()
        self.libraries = {
            (module, name): getattr(sys.modules[module], name) for module, name in OF_LIBRARIES if module in sys.modules
        }
        self.globals = {name: found for name, module in own_modules() if (found := settings_of(module))}
        self.generators = {
            name: states_of(found) for name, module in own_modules() if (found := generators_in(vars(module)))
        }
        """The states of the random number generators that are globals of the program's modules."""

    def __reduce__(self) -> tuple[Any, ...]:
        return begun, (self.environment, self.path), self.__dict__

    def apply(self) -> None:
        """Set this process as the other one was."""
        if self.process == os.getpid():
            return
        take_collate_functions(self.collate)
        for (module, name), value in self.libraries.items():
            if module in sys.modules or value != OF_LIBRARIES[module, name]:
                setattr(import_module(module), name, value)
        for module, found in self.globals.items():
            if module in sys.modules:
                set_globals(vars(sys.modules[module]), found)
        self.set_generators(self.generators)

    def generator_states(self) -> dict[str, Snapshot]:
        """Return the states that the generators in the program's modules have in this process now."""
        found = {
            module: generators_in(vars(sys.modules[module])) for module in self.generators if module in sys.modules
        }
        return {module: states_of(generators) for module, generators in found.items()}

    def set_generators(self, states: Mapping[str, Snapshot]) -> None:
        """Set those generators; they stay the objects that they are."""
        for module, found in states.items():
            own = generators_in(vars(sys.modules[module])) if module in sys.modules else {}
            for name, generator in own.items():
                try:
                    if name in found:
                        generator.set(found[name])
                except ValueError as error:
                    log.warning("%s.%s draws other numbers in workers than in the program: %s", module, name, error)


def states_of(generators: Mapping[str, Any]) -> Snapshot:
    """Return the states of those generators that have one."""
    found: Snapshot = {}
    for name, generator in generators.items():
        with suppress(Exception):  # one of a class of the user's
            found[name] = generator.get()
    return found


TAKEN: Final[set[str]] = set()
"""The variables of the environment that came from another process."""


def begun(environment: Mapping[str, str], path: list[str]) -> ProcessSettings:
    """Set the environment and `sys.path` as they are in another process; return settings without the others."""
    for name in TAKEN - environment.keys():
        os.environ.pop(name, None)
    os.environ.update(environment)
    TAKEN.update(environment)
    sys.path += [folder for folder in path if folder not in sys.path]
    return object.__new__(ProcessSettings)


def own_modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield the modules of the program, with their names: those that are not installed."""
    modules: dict[str, object] = {**sys.modules}
    for name, module in modules.items():
        if name not in MAINS and type(module) is ModuleType and is_own(name, getattr(module, "__file__", None)):
            yield name, module


def is_own(name: str, file: str | None) -> bool:
    """Return whether a module belongs to the program."""
    if not file or name.partition(".")[0] == __name__.partition(".")[0]:
        return False
    return "site-packages" not in file and "dist-packages" not in file and not file.startswith(STANDARD_LIBRARY)


def settings_of(module: ModuleType) -> dict[str, Any]:
    """Return the globals of a module that are settings: plain values with names in capitals, and configurations."""
    found: dict[str, Any] = {}
    for name, value in [*vars(module).items()]:
        plain = name.isupper() and not name.startswith("_") and isinstance(value, (*PLAIN, *COLLECTIONS, dict))
        if (plain or is_configuration(value)) and count_of(value) <= MOST and can_be_sent(value):
            found[name] = value
    return found


def is_configuration(value: Any) -> bool:
    """Return whether an object is a namespace, of a dataclass, or a dict of a class of its own."""
    kind = class_of(value)
    of_dict = issubclass(kind, dict) and kind is not dict and kind.__module__ != "collections"
    return of_dict or issubclass(kind, NAMESPACES) or is_dataclass(class_of(value))


def class_of(value: object) -> Any:
    """Return the class of a value."""
    return type(value)


def count_of(value: Any, depth: int = 0) -> int:
    """Return how many values a value consists of; more than `MOST` if one of them is no setting."""
    if isinstance(value, PLAIN):
        return 1
    if depth > 20:
        return MOST + 1
    kind = class_of(value)
    parts: list[Any] = [*getattr(value, "__dict__", {}).values()]
    if issubclass(kind, dict):
        parts += [part for item in value.items() for part in item]
    elif issubclass(kind, COLLECTIONS):
        parts += value
    elif not is_configuration(value):
        return MOST + 1
    return len(parts) + 1 if len(parts) > MOST else 1 + sum(count_of(part, depth + 1) for part in parts)


def can_be_sent(value: object) -> bool:
    """Return whether a value can be pickled."""
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001  whatever its class raises
        return False
    return True


def set_globals(names: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Set the globals of a module; dicts and objects stay the ones that they are, as others may hold them, too."""
    for name, value in found.items():
        own, kind = names.get(name), class_of(value)
        same = class_of(own) is kind
        if same and own == value:
            continue
        if same and (issubclass(kind, dict) or hasattr(own, "__dict__")):
            become(own, value)
        else:
            names[name] = value


def become(own: Any, value: Any) -> None:
    """Give an object the items and attributes of another one of its class, also if the class refuses to change."""
    of_dict: Any = dict
    if issubclass(class_of(own), dict):
        of_dict.clear(own)
        of_dict.update(own, value)
    if hasattr(own, "__dict__"):
        own.__dict__.clear()
        own.__dict__.update(value.__dict__)
