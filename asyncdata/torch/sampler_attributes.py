"""SamplerAttributes: what changes in a sampler from epoch to epoch, such as `epoch`, and seeds: they go into states."""

from __future__ import annotations

import pickle
import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from types import FunctionType
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

import numpy as np

from asyncdata.torch.internals import torch

__all__ = ("Attribute", "SamplerAttributes", "attributes")

PLAIN: Final = (bool, int, float, str, type(None))
GENERATORS: Final = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)


class Attribute(NamedTuple):
    """An attribute of a sampler, or of a sampler in it."""

    path: str
    value: Any


def samplers(sampler: Any, path: str = "sampler", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield a sampler and the samplers in it, each with its path."""
    seen = set() if seen is None else seen
    if id(sampler) in seen:
        return
    seen.add(id(sampler))
    yield path, sampler
    for name, value in getattr(sampler, "__dict__", {}).items():
        if isinstance(value, torch.utils.data.Sampler) or "sampler" in name:
            yield from samplers(value, f"{path}.{name}", seen)


def attributes(sampler: Any) -> Iterator[Attribute]:
    """Yield the attributes of a sampler, and of the samplers in it."""
    for path, one in samplers(sampler):
        for name, value in getattr(one, "__dict__", {}).items():
            yield Attribute(f"{path}.{name}", value)


class Digest(pickle.Pickler):
    """Pickles values to compare them: a class or function is its name, the numbers of arrays are a checksum.

    `fast` leaves out which objects are the same ones, so that equal values have equal digests.
    """

    def __init__(self, known: Collection[int], fast: bool) -> None:
        self.file = BytesIO()
        super().__init__(self.file, 5)
        self.known = known
        self.fast = fast

    def reducer_override(self, value: Any) -> Any:
        if value is str:
            return NotImplemented
        if id(value) in self.known:
            return str, ("",)
        if isinstance(value, (type, FunctionType)):
            return str, (f"{value.__module__}.{value.__qualname__}",)
        if isinstance(value, torch.Generator):
            value = value.get_state()
        if isinstance(value, torch.Tensor):
            memory = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return str, (f"{value.dtype} {value.shape} {crc32(memory.numpy())}",)
        if isinstance(value, np.ndarray) and not cast("Any", value).dtype.hasobject:
            array = cast("np.ndarray[Any, Any]", value)
            memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            return str, (f"{array.dtype} {array.shape} {crc32(memory)}",)
        return NotImplemented


def mark(value: Any, known: Collection[int]) -> Any:
    """Return something that is other for another value, whatever it holds; objects with these ids count as constant.

    Of what cannot be pickled, an iterator counts as changed, anything else by which object it is.
    """
    if isinstance(value, PLAIN):
        return type(value).__name__, value
    for fast in (True, False):  # which recurses without end where a value holds itself
        digest = Digest(known, fast)
        with suppress(Exception):
            digest.dump(value)
            return crc32(digest.file.getbuffer())
    return object() if isinstance(value, Iterator) else id(value)


class SamplerAttributes:
    """The attributes of a sampler without a state of its own, compared with those when the loader was built."""

    def __init__(self, sampler: Any, dataset: Any) -> None:
        self.sampler = sampler
        self.known = frozenset(map(id, [dataset, *(one for _, one in samplers(sampler))]))
        """The dataset, which is no part of the sampler, and the samplers, whose attributes are compared one by one."""
        self.first = self.marks()

    def marks(self) -> dict[str, Any]:
        """Return the mark of each attribute, but for generators, whose states are stored."""
        return {
            one.path: mark(one.value, self.known)
            for one in attributes(self.sampler)
            if id(one.value) not in self.known and not isinstance(one.value, GENERATORS)
        }

    def changed(self) -> tuple[dict[str, Any], list[str]]:
        """Return the plain attributes that have changed or are seeds, and the names of those that no state can hold.

        A seed is drawn when many a sampler is built: another process has another one.
        """
        found: dict[str, Any] = {}
        lost: list[str] = []
        marks = self.marks()
        for one in attributes(self.sampler):
            changed, plain = self.first.get(one.path) != marks.get(one.path), isinstance(one.value, PLAIN)
            if plain and (changed or "seed" in one.path.rpartition(".")[2]):
                found[one.path] = one.value
            elif changed:
                lost.append(one.path)
        return found, lost

    def set(self, saved: Mapping[str, Any]) -> None:
        """Set the attributes that a state has."""
        found = dict(samplers(self.sampler))
        for path, value in saved.items():
            owner, _, name = path.rpartition(".")
            setattr(found[owner], name, value)
