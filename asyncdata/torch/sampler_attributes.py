"""SamplerAttributes: what changes in a sampler from epoch to epoch, such as `epoch`, and goes into states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

import numpy as np

from asyncdata.torch.internals import torch

__all__ = ("Attribute", "SamplerAttributes", "attributes")

PLAIN: Final = (bool, int, float, str, type(None))

MOST_ITEMS: Final = 1000
"""Collections of up to so many items are compared; a larger one counts as changed if it is another object."""


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


def mark(value: Any) -> Any:
    """Return something that is other for another value."""
    if isinstance(value, PLAIN):
        return type(value).__name__, value
    if isinstance(value, torch.Tensor) and value.numel() <= MOST_ITEMS:
        return crc32(repr(value.tolist()).encode())
    if isinstance(value, np.ndarray) and cast("Any", value).size <= MOST_ITEMS:
        return crc32(repr(cast("Any", value).tolist()).encode())
    if isinstance(value, (list, tuple, dict, set)) and len(cast("list[Any]", value)) <= MOST_ITEMS:
        return crc32(repr(cast("Any", value)).encode())
    return id(cast("object", value))


class SamplerAttributes:
    """The attributes of a sampler without a state of its own, compared with those when the loader was built."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.first = {one.path: mark(one.value) for one in attributes(sampler)}

    def changed(self) -> tuple[dict[str, Any], list[str]]:
        """Return the plain attributes that have changed, and the names of those that no state can hold."""
        found: dict[str, Any] = {}
        lost: list[str] = []
        for one in attributes(self.sampler):
            if self.first.get(one.path) == mark(one.value):
                continue
            if isinstance(one.value, PLAIN):
                found[one.path] = one.value
            else:
                lost.append(one.path)
        return found, lost

    def set(self, saved: Mapping[str, Any]) -> None:
        """Set the attributes that had changed."""
        found = dict(samplers(self.sampler))
        for path, value in saved.items():
            owner, _, name = path.rpartition(".")
            setattr(found[owner], name, value)
