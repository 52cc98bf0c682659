"""Elements that are objects of classes: what comes out has the parts that went in, whatever their constructors do."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import optree
import pytest

import asyncdata as ad

D = ad.Dataset


@dataclasses.dataclass
class Tenth:
    """A class that changes what it is given."""

    x: Any
    more: Any = dataclasses.field(init=False, default=None)
    scale: dataclasses.InitVar[int] = 10

    def __post_init__(self, scale: int) -> None:
        self.x = self.x / scale
        self.more = self.x + 1
        self.name = "kept"  # pyright: ignore[reportUninitializedInstanceVariable]


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", self.x / 10)


@dataclasses.dataclass
class Derived(Tenth):
    y: Any = 3

    @property
    def double(self) -> Any:
        return self.y * 2


class Point(NamedTuple):
    x: Any


class Doubled(Point):
    def __new__(cls, x: Any) -> Self:
        return super().__new__(cls, x * 2)


class Encoding(collections.UserDict[str, Any]):
    """A mapping that is made of more than a mapping, as BatchEncoding of transformers is."""

    def __init__(self, data: Mapping[str, Any], encodings: Any) -> None:
        super().__init__(data)
        self.encodings = encodings


class Plain(dict[str, Any]):
    pass


class Scaling(dict[str, Any]):
    """A mapping that changes what is assigned."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value * 100)


def parts(element: Any) -> list[Any]:
    """Return the numbers in an element, rows of a batch one after the other."""
    if isinstance(element, Mapping):
        found: Any = [element[key] for key in element]
    elif isinstance(element, tuple):
        found = element
    else:
        found = [getattr(element, field.name) for field in dataclasses.fields(element)]
    return [np.asarray(list(part) if isinstance(part, D) else part).tolist() for part in found]


MAKERS: list[Callable[[int], Any]] = [
    lambda i: Tenth(100 * i),
    lambda i: Frozen(100 * i),
    lambda i: Derived(100 * i),
    lambda i: Doubled(i),
    lambda i: Encoding({"x": i, "y": [i, 0]}, 3),
    lambda i: Plain(x=i),
    lambda i: Scaling(x=i),
    lambda i: types.MappingProxyType({"x": i}),
    lambda i: collections.Counter(x=i),
    lambda i: collections.OrderedDict(x=i),
    lambda i: collections.defaultdict(int, x=i),
    lambda i: collections.ChainMap({"x": i}, {"y": i}),
]

STEPS: dict[str, Callable[[Any], Any]] = {
    "batch": lambda ds: ds.batch(2),
    "padded_batch": lambda ds: ds.padded_batch(2),
    "ragged_batch": lambda ds: ds.map(without_lists).ragged_batch(2),
    "rebatch": lambda ds: ds.batch(3).rebatch(2),
    "window": lambda ds: ds.map(without_lists).window(2),
    "bucket": lambda ds: ds.bucket_by_sequence_length(lambda *_: 1, [5], [2, 2]),
}

SINGLE: dict[str, Callable[[Any], Any]] = {
    "unbatch": lambda ds: ds.batch(3).unbatch(),
    "cache": lambda ds: ds.cache().repeat(2).take(4),
    "as_numpy_iterator": lambda ds: ds.as_numpy_iterator(),
    "from_tensors": lambda ds: (D.from_tensors(one).get_single_element() for one in ds),
    "from_list": lambda ds: D.from_list(list(ds)),
    "from_iterable": lambda ds: D.from_iterable(list(ds)),
    "shuffle": lambda ds: ds.batch(4).unbatch().shuffle(1),
    "tee": lambda ds: ds.tee(1)[0],
}


def without_lists(element: Any) -> Any:
    return Encoding({"x": element["x"]}, 3) if type(element) is Encoding else element


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("step", STEPS)
def test_batches_have_the_parts_that_went_in(step: str, make: Callable[[int], Any]) -> None:
    elements = [make(i) for i in range(4)]
    if step in ("ragged_batch", "window"):
        elements = [without_lists(element) for element in elements]
    for place, batch in enumerate(STEPS[step](D.range(4).map(make))):
        pairs = zip(*[parts(element) for element in elements[2 * place : 2 * place + 2]], strict=True)
        assert parts(batch) == [list(pair) for pair in pairs]
        assert type(batch) is type(elements[0]) or type(elements[0]) in (types.MappingProxyType, Scaling)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("step", SINGLE)
def test_elements_have_the_parts_that_went_in(step: str, make: Callable[[int], Any]) -> None:
    found = list(SINGLE[step](D.range(4).map(make)))
    assert [parts(element) for element in found] == [parts(make(i)) for i in range(4)]


def test_what_is_no_part_is_carried_over() -> None:
    (batch,) = D.range(2).map(lambda i: Encoding({"x": i}, "e")).batch(2)
    assert batch.encodings == "e"
    (sample,) = D.range(2).map(Tenth).batch(2)
    assert sample.name == "kept"


def test_mappings_with_keys_in_another_order_are_batched_and_others_refused() -> None:
    rows = [Plain(a=1, b=2), Plain(b=4, a=3), Plain(a=1)]
    ds = D.from_iterable(rows).batch(2)
    (first,) = ds.take(1)
    assert first.keys() == {"a", "b"}
    assert first["a"].tolist() == [1, 3]
    with pytest.raises(ad.StructureError, match="parts"):
        list(D.from_iterable(rows).batch(3))


class Broken(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __iter__(self) -> Iterator[str]:
        raise OSError("gone")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)


class Odd:
    """A class registered with optree that cannot be made of arrays, nor of a dataset."""

    def __init__(self, x: Any) -> None:
        if type(x) is not int:
            raise RuntimeError("an int")
        self.x = x


optree.register_pytree_node(
    Odd,
    lambda odd: ((odd.x,), None, None),
    lambda _, x: Odd(*x),
    namespace=getattr(optree.registry, "__GLOBAL_NAMESPACE"),
)


@pytest.mark.parametrize("make", [lambda _: Broken(), Odd])
@pytest.mark.parametrize(
    "step", [*STEPS, "unbatch", "as_numpy_iterator", "zip", "cache", "tee", "shuffle", "from_iterable"]
)
def test_a_class_that_fails_is_the_failure_of_the_element(step: str, make: Callable[[int], Any]) -> None:
    if step in ("ragged_batch", "window", "zip"):
        change = {"ragged_batch": lambda ds: ds.ragged_batch(2), "window": lambda ds: ds.window(2)}
        wanted = change.get(step, lambda ds: D.zip((ds, ds)))
    else:
        wanted = {**STEPS, **SINGLE, "unbatch": lambda ds: ds.unbatch(), "rebatch": lambda ds: ds.rebatch(2)}[step]
    iterator = iter(wanted(D.range(4).map(make)))
    seen = 0
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        except ad.StructureError:
            pass
        seen += 1
    pairs = {"batch", "padded_batch", "ragged_batch", "window", "bucket"}
    assert seen == (1 if step == "shuffle" else 2 if step in pairs else 4)


def test_masks_are_kept() -> None:
    x = np.ma.masked_array(np.arange(8).reshape(4, 2), np.arange(8).reshape(4, 2) % 3 == 0)
    for tensors, back in ((x, lambda one: one), ({"x": x}, lambda one: one["x"]), (x[:, 0], lambda one: one)):
        whole = back(tensors)
        rows = [back(row) for row in D.from_tensor_slices(tensors)]
        assert [np.ma.getmaskarray(row).tolist() for row in rows] == whole.mask.tolist()
        batches = [back(one) for one in D.from_tensor_slices(tensors).batch(3)]
        assert np.ma.concatenate(batches).tolist() == whole.tolist()
        assert batches[0].dtype == x.dtype
        assert back(D.from_tensors(tensors).get_single_element()).tolist() == whole.tolist()
        assert [back(one).tolist() for one in D.from_tensors(tensors).unbatch()] == [row.tolist() for row in rows]
        assert [back(one).tolist() for one in D.from_list([tensors]).as_numpy_iterator()] == [whole.tolist()]


MASKED: Any = np.ma.masked_array([1, 2], [False, True])
PLAIN: Any = np.array([3, 4])


@pytest.mark.parametrize("others", [PLAIN, [3, 4]], ids=["array", "list"])
def test_arrays_with_and_without_a_mask_are_batched_with_masks(others: Any) -> None:
    for elements in ([MASKED, others], [others, MASKED]):
        (batch,) = D.from_iterable(elements).batch(2)
        assert sorted(batch.tolist()) == [[1, None], [3, 4]]
        with pytest.raises(ad.StructureError, match="has shape"):
            list(D.from_iterable([MASKED[:1], others]).batch(2))


KEEPING_NUMBERS_ALONE: dict[str, Any] = {
    "padded_batch": lambda ds: ds.padded_batch(2),
    "bucket_by_sequence_length": lambda ds: ds.bucket_by_sequence_length(len, [9], [2, 2]),
    "bucket_by_token_count": lambda ds: ds.bucket_by_token_count(9, len),
    "pack_sequences": lambda ds: ds.pack_sequences(9),
    "output_signature": lambda ds: D.from_generator(lambda: ds, output_signature=ad.TensorSpec((2,), "int64")),
    "make_example": lambda ds: ds.map(lambda x: ad.make_example({"x": x})),
}


@pytest.mark.parametrize("step", KEEPING_NUMBERS_ALONE)
def test_what_would_lose_a_mask_refuses_it(step: str) -> None:
    plain, masked = D.from_tensor_slices(PLAIN[None]), D.from_tensor_slices(MASKED[None])
    for ds in (masked, plain.concatenate(masked), D.from_list([PLAIN, MASKED])):
        with pytest.raises(ad.StructureError, match=r"masked array.*\.filled"):
            list(KEEPING_NUMBERS_ALONE[step](ds))


def test_integers_and_floats_are_batched_as_floats_unless_a_signature_says_otherwise() -> None:
    (batch,) = D.from_iterable([1, 2.5]).batch(2)
    assert batch.dtype == np.float64
    told = D.from_generator(lambda: iter([1, 2.5]), output_signature=ad.TensorSpec((), "int64"))
    with pytest.raises(ad.StructureError, match=r"int64.* got 2\.5"):
        list(told.batch(2))
