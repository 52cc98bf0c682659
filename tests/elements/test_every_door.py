"""Every value, through every way on which elements travel: the same type, dtype and value, or an error."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

import asyncdata as ad
from tests.elements.sameness import difference
from tests.elements.table import CONTAINERS, VALUES, Make, optional

PACKAGES = [
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("jax", marks=pytest.mark.integrations),
    pytest.param("pyarrow", marks=pytest.mark.formats),
    pytest.param("pandas", marks=pytest.mark.formats),
    pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    "other",
]

GROUPS = ["values", "containers", *PACKAGES]

pytestmark = pytest.mark.filterwarnings("ignore")  # of packages about some of their values


def same(*element: Any) -> Any:
    return element[0] if len(element) == 1 and type(element[0]) is not tuple else element


def values_of(group: str) -> dict[str, Make]:
    if group in {"values", "containers"}:
        return {**(VALUES if group == "values" else CONTAINERS)}
    if group != "other":
        pytest.importorskip(group)
    return optional(group)


def read(ds: Iterable[Any], most: int) -> list[Any]:
    """Return the elements, and the errors in the places of others."""
    found: list[Any] = []
    elements = iter(ds)
    while len(found) <= most:
        try:
            found.append(next(elements))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)
    raise AssertionError("too many elements or errors")


def differences(
    makes: Mapping[str, Make],
    found: list[Any],
    refused: Callable[[str], bool],
    wanted: Callable[[Any], Any] = lambda it: it,
) -> dict[str, str]:
    """Return what differs, by the names of the values."""
    assert len(found) == len(makes)
    odd: dict[str, str] = {}
    for (name, make), got in zip(makes.items(), found, strict=True):
        want = wanted(make())
        if isinstance(got, Exception) and not isinstance(want, Exception):
            words = "" if refused(name) and isinstance(got, (ad.StructureError, TypeError)) else repr(got)
        else:
            words = difference(got, want)
        if words:
            odd[name] = words
    return odd


def never(_: str) -> bool:
    return False


def rebuilt(value: Any) -> Any:
    """Return a value as steps rebuild it: mappings that cannot be written to become dicts, parameters tensors."""
    if isinstance(value, Mapping) and not isinstance(value, collections.abc.MutableMapping):
        return dict(value) if type(value).__module__ != "pyarrow.lib" else value
    return value.data if type(value).__name__ == "Parameter" else value


@pytest.mark.parametrize("group", GROUPS)
def test_in_memory(group: str) -> None:
    makes = values_of(group)
    ds = ad.Dataset.from_iterable([make() for make in makes.values()])
    for found in (read(ds, len(makes)), read(ds.shuffle(1).cache(), len(makes))):
        assert differences(makes, found, never, rebuilt) == {}


UNSENT = {"generator", "arrow tensor", "torch complex32", "NotImplemented"}
"""Values that cannot be pickled."""


@pytest.mark.parametrize("group", GROUPS)
def test_to_a_worker_process_and_back(group: str) -> None:
    makes = values_of(group)
    items = [[make()] for make in makes.values()]  # a list, of which the function gets one argument
    ds = ad.Dataset.from_iterable(items).map(same, executor="process", num_parallel_calls=1)
    found = [one[0] if isinstance(one, list) else one for one in read(ds, len(makes))]
    assert differences(makes, found, UNSENT.__contains__, rebuilt) == {}
