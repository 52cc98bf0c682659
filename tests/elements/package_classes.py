"""Containers of packages that may be installed: their classes are here, where other processes find them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

__all__ = ("containers",)

found: dict[str, Callable[[], Any]] = {}


def containers() -> dict[str, Callable[[], Any]]:
    """Return the containers of the packages that are installed."""
    return found


def numbers() -> Any:
    return np.arange(3, dtype=np.int16)


if find_spec("attrs"):
    import attrs

    @attrs.define
    class Defined:
        x: Any
        y: int = attrs.field(default=3, converter=int)

    @attrs.frozen
    class FrozenDefined:
        x: Any

    found["attrs"] = lambda: Defined(numbers(), 2)
    found["attrs, frozen"] = lambda: FrozenDefined(numbers())

if find_spec("pydantic"):
    import pydantic
    import pydantic.dataclasses

    class Model(pydantic.BaseModel):
        x: int
        y: list[float] = []

    @pydantic.dataclasses.dataclass
    class Checked:
        x: int
        y: str = "a"

    found["pydantic model"] = lambda: Model(x=1, y=[2.5])
    found["pydantic dataclass"] = lambda: Checked(1)

if find_spec("msgspec"):
    import msgspec

    class Struct(msgspec.Struct):
        x: int
        y: str = "a"

    found["msgspec Struct"] = lambda: Struct(1)

if find_spec("multidict"):
    import multidict

    found["multidict"] = lambda: multidict.MultiDict([("a", 1), ("a", 2)])

if find_spec("sortedcontainers"):
    import sortedcontainers

    found["SortedDict"] = lambda: sortedcontainers.SortedDict({"b": numbers(), "a": 2})

if find_spec("starlette"):
    import starlette.datastructures

    found["starlette parameters"] = lambda: starlette.datastructures.QueryParams("a=1&a=2")

if find_spec("httpx"):
    import httpx

    found["httpx headers"] = lambda: httpx.Headers([("a", "1"), ("a", "2")])
