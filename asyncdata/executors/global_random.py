"""Global generators of random numbers in worker processes: seeded in each, or for each element; also those of packages
imported later."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ("key_of", "seed_generators", "seed_process")


SEEDERS: Final[dict[str, Callable[[Any, int], object]]] = {
    "random": lambda module, seed: module.seed(seed),
    "numpy.random": lambda module, seed: module.seed(seed >> 32),
    "torch": lambda module, seed: module.default_generator.manual_seed(seed),
    "tensorflow": lambda module, seed: module.random.set_seed(seed >> 1),
    "cv2": lambda module, seed: module.setRNGSeed(seed >> 33),
    "paddle": lambda module, seed: module.seed(seed >> 33),
    "mlx.core": lambda module, seed: module.random.seed(seed >> 1),
}
"""How the global generator of a package is seeded, by the module that has it, in microseconds: so PyTorch's of the
CPU alone, and NumPy's with 32 bits. Others, as cupy's, begin with numbers of
the system; JAX has none."""


def seed_of(key: bytes, name: str) -> int:
    """Return the seed of a package's generator: 64 bits."""
    return int.from_bytes(blake2b(name.encode(), key=key, digest_size=8).digest(), "little")


def key_of(*parts: object) -> bytes:
    """Return the key of an element, an epoch or the like: the same on every machine."""
    return blake2b(repr(parts).encode(), digest_size=32).digest()


def seed_generators(key: bytes) -> None:
    """Seed the global generators of all packages that are imported, and of others when they are."""
    SEEDER.key = key
    for name, seed in SEEDERS.items():
        if (module := sys.modules.get(name)) is not None:
            with suppress(AttributeError):  # another module of that name, or one that is being imported
                seed(module, seed_of(key, name))


class Seeder:
    """Seeds the generator of a package when it is imported, before the code that imports it continues."""

    def __init__(self) -> None:
        self.key = b""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a package with a generator is, as others find it; `None` for all other modules."""
        if name not in SEEDERS:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            with suppress(AttributeError):  # a loader that takes no attributes
                spec.loader.exec_module = partial(self.execute, spec.loader, spec.loader.exec_module)
        return spec

    def execute(self, loader: Any, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        """Run a module's code as its loader does, and seed its generator."""
        del loader.exec_module
        execute(module)
        with suppress(AttributeError):  # another module of that name
            SEEDERS[module.__name__](module, seed_of(self.key, module.__name__))


SEEDER: Final = Seeder()


def seed_process() -> None:
    """Seed all global generators of this process with numbers that no other process has."""
    seed_generators(secrets.token_bytes(32))
    if SEEDER not in sys.meta_path:
        sys.meta_path.insert(0, SEEDER)
