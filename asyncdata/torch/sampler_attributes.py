"""SamplerAttributes: what changes in a sampler, such as `epoch`, goes into states, and seeds, to be compared."""

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

from asyncdata.errors import PlanError, ResumeError
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.system.rank import this_rank
from asyncdata.torch.internals import torch

__all__ = ("Attribute", "SamplerAttributes", "attributes", "checksum", "rank_of_process", "samplers")

PLAIN: Final = (bool, int, float, str, type(None))
GENERATORS: Final = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)


class Attribute(NamedTuple):
    """An attribute of a sampler, or of a sampler in it."""

    path: str
    value: Any


def samplers(sampler: Any, path: str = "sampler", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield a sampler, the samplers in it, and objects in it that have samplers, each with its path."""
    seen = set() if seen is None else seen
    if id(sampler) in seen:
        return
    seen.add(id(sampler))
    yield path, sampler
    for name, value in getattr(sampler, "__dict__", {}).items():
        for place, one in several_samplers(value).items():
            yield from samplers(one, f"{path}.{name}.{place}", seen)
        if is_sampler(value) or ("sampler" in name and hasattr(value, "__dict__")) or has_sampler(value):
            yield from samplers(value, f"{path}.{name}", seen)


def is_sampler(value: object) -> bool:
    return isinstance(value, torch.utils.data.Sampler)


def has_sampler(value: object) -> bool:
    """Return whether an object has a sampler, as datasets have that are the numbers which a sampler gives."""
    return any(map(is_sampler, getattr(value, "__dict__", {}).values()))


def several_samplers(value: Any) -> dict[Any, Any]:
    """Return the samplers of a list, tuple or dict of samplers by their places or keys; nothing of any other value."""
    if not isinstance(value, (list, tuple, dict)) or not value:
        return {}
    named = cast("dict[Any, Any]", value) if isinstance(value, dict) else None
    parts = cast("list[Any]", value) if named is None else named.values()
    if not all(map(is_sampler, parts)):
        return {}
    return dict(enumerate(parts)) if named is None else named


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
    found = checksum(value, known)
    if found is None:
        return object() if isinstance(value, Iterator) else id(value)
    return found


def checksum(value: Any, known: Collection[int] = ()) -> int | None:
    """Return a checksum of a value, whatever it holds, but for objects with these ids; `None` if it has none."""
    for fast in (True, False):  # which recurses without end where a value holds itself
        digest = Digest(known, fast)
        with suppress(Exception):
            digest.dump(value)
            return crc32(digest.file.getbuffer())
    return None


class SamplerAttributes:
    """The attributes of a sampler, compared with those when the loader was built, but for those that are inside of a
    sampler with a state of its own, which has the path `stateful`."""

    def __init__(self, sampler: Any, dataset: Any, stateful: str) -> None:
        self.sampler = sampler
        self.stateful = stateful
        self.known = frozenset(map(id, [dataset, *(one for _, one in samplers(sampler))]))
        """The dataset, which is no part of the sampler, and the samplers, whose attributes are compared one by one."""
        self.originals = {one.path: one.value for one in attributes(sampler)}
        self.first = self.marks()
        self.seeds = seeds_of(sampler)
        """The seeds when the loader was built."""

    def marks(self) -> dict[str, Any]:
        """Return the mark of each attribute, but for generators, whose states are stored."""
        inside, known = f"{self.stateful}.", self.known | {id(one) for _, one in samplers(self.sampler)}
        return {
            one.path: mark(one.value, known)
            for one in attributes(self.sampler)
            if not (id(one.value) in known or isinstance(one.value, GENERATORS) or one.path.startswith(inside))
        }

    def changed(self) -> tuple[dict[str, Any], list[str]]:
        """Return the attributes that have changed, as JSON values, and the names of those that no state can hold."""
        found: dict[str, Any] = {}
        lost: list[str] = []
        marks, held = self.marks(), [*attributes(self.sampler)]
        for one in held:
            if isinstance(one.value, GENERATORS) or self.first.get(one.path) == marks.get(one.path):
                continue
            if isinstance(one.value, PLAIN):
                found[one.path] = one.value
            elif self.is_alone(one, held) and (kept := exact_json(one.value)) is not None:
                found[one.path] = kept
            else:
                lost.append(one.path)
        return found, lost

    def is_alone(self, one: Attribute, held: list[Attribute]) -> bool:
        """Return whether the sampler has set an attribute to another object, which nothing else in it holds.

        Of an object that it was built with, and has changed in place, others may hold the same one.
        """
        return one.value is not self.originals.get(one.path) and sum(other.value is one.value for other in held) == 1

    def take_seeds(self, saved: Mapping[str, Any], rank: int | None) -> None:
        """Set drawn seeds to those that a state of this rank has; `ResumeError` if a chosen one was another.

        A chosen seed that was set later, to that of the state, is right, too.
        """
        found, own = dict(samplers(self.sampler)), rank_of_process()
        for path, value in saved.items():
            owner, _, name = path.rpartition(".")
            now = getattr(found.get(owner), name, None)
            if owner not in found or same_value(value, now):
                continue  # of another sampler the batches differ
            if not same_value(value, self.seeds.get(path)):
                check_drawn(path, value, now)
                if None not in (rank, own) and rank != own:
                    raise ResumeError(f"the loader's state was saved by rank {rank}, but this process is rank {own}")
            setattr(found[owner], name, value)

    def set(self, saved: Mapping[str, Any]) -> None:
        """Set the attributes that had changed."""
        found = dict(samplers(self.sampler))
        for path, value in saved.items():
            owner, _, name = path.rpartition(".")
            setattr(found[owner], name, from_json_value(value))


def exact_json(value: Any) -> Any:
    """Return a list or another value as a JSON value from which the same can be made; `None` if there is none."""
    with suppress(Exception):
        found = to_json_value(value)
        if checksum(from_json_value(found)) == checksum(value):
            return found
    return None


def seeds_of(sampler: Any) -> dict[str, Any]:
    """Return the plain attributes of a sampler that are seeds by their names."""
    return {
        one.path: one.value
        for one in attributes(sampler)
        if "seed" in one.path.rpartition(".")[2] and isinstance(one.value, PLAIN)
    }


def same_value(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal and of one type."""
    return type(one) is type(other) and one == other


def check_drawn(path: str, was: Any, now: Any) -> None:
    """Raise unless both seeds were drawn when the sampler was built, and not chosen by the program.

    Without a seed torch draws one of 53 bits, and a sampler that takes it has another one in each process. NumPy takes
    seeds below 2**32, so a program's are there: these, and drawn ones that small, are compared.
    """
    if not all(type(seed) is int and seed >= 2**32 for seed in (was, now)):
        raise ResumeError(
            f"{path} was {was!r:.80} when the loader's state was saved, and is {now!r:.80} now: load the state of this "
            "rank, or build the sampler with the seed of the state"
        )


def rank_of_process() -> int | None:
    """Return the rank of this process, `None` if it is not known."""
    with suppress(PlanError):
        return this_rank().rank
    return None
