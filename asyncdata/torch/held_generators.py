"""HeldGenerators: the random number generators that a dataset, or a function of the loader, holds in its attributes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from logging import Logger
from types import ModuleType
from typing import Any, Final, cast

from asyncdata.errors import ResumeError
from asyncdata.torch.generators import Snapshot, generators_in, made_from, restore, snapshot
from asyncdata.torch.internals import torch

__all__ = ("HeldGenerators",)

MOST: Final = 1000
"""What has more parts than this is data, which holds no generators."""
MOST_OBJECTS: Final = 10_000
"""So many objects are looked at."""
LEAVES: Final = (bool, int, float, complex, str, bytes, bytearray, type(None), type, ModuleType, Logger, torch.Tensor)


class HeldGenerators:
    """The generators of a dataset and of `collate_fn`, such as those of transforms, each by its path."""

    def __init__(self, dataset: Any, collate_fn: Any) -> None:
        self.roots = {"dataset": dataset, "collate_fn": collate_fn}
        self.by_path: dict[str, Any] = {}
        self.find()
        self.first = snapshot(self.by_path)
        """Their states when this was made."""

    def find(self) -> None:
        """Look for them, as some are made when they are first drawn from."""
        self.by_path = {}
        waiting, seen = deque[tuple[list[Any], Any]]([([], self.roots)]), set[int]()
        while waiting and len(seen) < MOST_OBJECTS:
            path, value = waiting.popleft()
            for step, part in parts_of(value):
                if id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(([*path, step], part))
                    for generator in generators_in({"": part}).values():
                        self.by_path[json.dumps([*path, step])] = generator

    def changed(self) -> Snapshot | None:
        """Return their states, `None` if these are those that they had first."""
        states = snapshot(self.by_path)
        return None if states == self.first else states

    def set(self, states: Snapshot | None) -> None:
        """Set them to their states, without these to those that they had first; `ResumeError` if there are others."""
        states = self.first if states is None else states
        for path in sorted(states.keys() - self.by_path.keys()):
            self.make(path, states[path])
        common = states.keys() & self.by_path.keys()
        restore({path: self.by_path[path] for path in common}, {path: states[path] for path in common})

    def make(self, path: str, state: Any) -> None:
        """Give an object the generator that it would make when it first draws from it."""
        owner: Any = self.roots
        *steps, last = json.loads(path)
        for step in steps:
            owner = dict(parts_of(owner)).get(step)
        there, has_items = dict(parts_of(owner)), isinstance(owner, (dict, list))
        can_have = last in there if has_items else hasattr(owner, "__dict__")
        if there.get(last) is not None or not can_have:
            raise ResumeError(
                f"the state has a random number generator at {path}, and the dataset has none there: give it the same "
                "transforms"
            )
        if has_items:
            owner[last] = made_from(state)
        else:
            setattr(owner, last, made_from(state))
        self.find()


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what an object holds: attributes, or items, with their names, keys or places."""
    if isinstance(value, LEAVES):
        return
    held: Mapping[Any, Any] = getattr(value, "__dict__", {})
    if isinstance(value, dict):
        held = cast("dict[Any, Any]", value)
    elif isinstance(value, (list, tuple)) and len(cast("list[Any]", value)) <= MOST:
        held = dict(enumerate(cast("list[Any]", value)))
    if len(held) <= MOST:
        yield from ((step, part) for step, part in [*held.items()] if isinstance(step, (str, int)))
