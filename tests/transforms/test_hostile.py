"""Elements whose own methods raise: an error is in their place, and their neighbours arrive, in all transformations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.grouping import Grouping
from asyncdata.transformations import Transformations

METHODS = """
    hash eq len iter getitem index bool sizeof copy deepcopy array int float lt contains reduce_ex
"""


class OwnError(Exception):
    """What a hostile element's methods raise."""


def refuse(*_: Any) -> Any:
    raise OwnError


class Hostile:
    """An object every special method of which raises, and every attribute that arrays have."""

    nbytes = shape = dtype = ndim = __array_interface__ = property(refuse)


for method in METHODS.split():
    setattr(Hostile, f"__{method}__", refuse)


class Uncompared:
    """What has a hash and cannot be compared."""

    def __hash__(self) -> int:
        return hash(2)

    def __eq__(self, other: object) -> bool:
        raise OwnError


class HostileList(list[Any]):
    """A list that cannot be read."""

    __len__ = __iter__ = __getitem__ = refuse  # type: ignore[assignment]


class HostileTuple(tuple[Any, ...]):
    """A tuple that cannot be read."""

    __len__ = __iter__ = __getitem__ = refuse  # type: ignore[assignment]
    __slots__ = ()


class HostileDict(dict[Any, Any]):
    """A dict that cannot be read."""

    __len__ = __iter__ = __getitem__ = keys = values = items = refuse  # type: ignore[assignment]


@dataclass
class Unreadable:
    """A dataclass whose field cannot be read."""

    x: int = 1

    def __getattribute__(self, name: str) -> Any:
        return refuse() if name == "x" else object.__getattribute__(self, name)


KINDS = (Hostile, Uncompared, HostileList, HostileTuple, HostileDict, Unreadable)


def source(kind: Callable[[], Any]) -> ad.Dataset[Any]:
    """Return 0 and 1, an element of a kind, and 3 to 5."""
    return ad.Dataset.from_generator(lambda: (kind() if number == 2 else number for number in range(6)))


def itself(x: Any) -> Any:
    return x


REDUCER = ad.Reducer(lambda _: 0, lambda state, _: state + 1, itself)
RANGE = ad.Dataset.range(6)
TABLE: dict[str, tuple[Callable[[ad.Dataset[Any]], ad.Dataset[Any]], ...]] = {
    "apply": (lambda ds: ds.apply(itself),),
    "assert_cardinality": (lambda ds: ds.assert_cardinality(6),),
    "balance": (lambda ds: ds.balance(lambda _: 1, 2, 1, 0), lambda ds: ds.balance(itself, 2, 1, 0)),
    "batch": (lambda ds: ds.batch(2), lambda ds: ds.map(itself, num_parallel_calls=2).batch(2)),
    "bucket_by_sequence_length": (
        lambda ds: ds.bucket_by_sequence_length(lambda _: 1, [2], [2, 2]),
        lambda ds: ds.bucket_by_sequence_length(itself, [2, 4], [2, 2, 2]),
    ),
    "bucket_by_token_count": (
        lambda ds: ds.bucket_by_token_count(2, lambda _: 1),
        lambda ds: ds.bucket_by_token_count(2, itself),
    ),
    "cache": (lambda ds: ds.cache(), lambda ds: ds.cache(max_bytes=10_000)),
    "concatenate": (lambda ds: ds.concatenate(RANGE),),
    "distinct": (lambda ds: ds.distinct(), lambda ds: ds.distinct(itself)),
    "enumerate": (lambda ds: ds.enumerate(),),
    "filter": (lambda ds: ds.filter(itself), lambda ds: ds.filter(itself, num_parallel_calls=2)),
    "flat_map": (lambda ds: ds.flat_map(itself), lambda ds: ds.flat_map(lambda x: ad.Dataset.from_iterable([x]))),
    "group_by_reducer": (
        lambda ds: ds.group_by_reducer(itself, REDUCER),
        lambda ds: ds.group_by_reducer(lambda _: 0, REDUCER),
    ),
    "group_by_window": (
        lambda ds: ds.group_by_window(itself, lambda _, window: window.batch(2), 2),
        lambda ds: ds.group_by_window(lambda _: 0, lambda _, window: window.batch(2), 2),
    ),
    "join": (lambda ds: ds.join(RANGE, itself).map(lambda _, other: other),),
    "ignore_errors": (lambda ds: ds.batch(2).ignore_errors(),),
    "interleave": (lambda ds: ds.interleave(lambda x: ad.Dataset.from_iterable([x])),),
    "map": (
        lambda ds: ds.map(itself),
        lambda ds: ds.map(itself, num_parallel_calls=2),
        lambda ds: ds.map(itself, pure=True),
        lambda ds: ds.map(itself, batch=2),
    ),
    "pack_sequences": (lambda ds: ds.pack_sequences(8),),
    "pad_to_cardinality": (lambda ds: ds.pad_to_cardinality(9),),
    "padded_batch": (lambda ds: ds.padded_batch(2),),
    "prefetch": (lambda ds: ds.prefetch(2), lambda ds: ds.prefetch(ad.AUTOTUNE)),
    "prefetch_to_device": (lambda ds: ds.prefetch_to_device(Accelerator()),),
    "ragged_batch": (lambda ds: ds.ragged_batch(2),),
    "list_batch": (lambda ds: ds.list_batch(2),),
    "rate_limit": (lambda ds: ds.rate_limit(1e6),),
    "rebatch": (lambda ds: ds.rebatch(2),),
    "rejection_resample": (lambda ds: ds.rejection_resample(itself, [1 / 6] * 6),),
    "repeat": (lambda ds: ds.repeat(2),),
    "scan": (lambda ds: ds.scan(0, lambda _, x: (x, x)),),
    "shard": (lambda ds: ds.shard(2, 0),),
    "shuffle": (lambda ds: ds.shuffle(3),),
    "skip": (lambda ds: ds.skip(1),),
    "take": (lambda ds: ds.take(5),),
    "take_while": (lambda ds: ds.skip(1).take_while(itself),),
    "unbatch": (lambda ds: ds.unbatch(), lambda ds: ds.batch(2).unbatch()),
    "unique": (lambda ds: ds.unique(),),
    "window": (lambda ds: ds.window(2), lambda ds: ds.window(2).flat_map(lambda window: window.batch(2))),
    "with_options": (lambda ds: ds.with_options(ad.Options(placement="current")),),
    "zip": (lambda ds: ad.Dataset.zip(ds, RANGE),),
    "choose_from_datasets": (lambda ds: ad.Dataset.choose_from_datasets([RANGE] * 6, ds),),
    "sample_from_datasets": (lambda ds: ad.Dataset.sample_from_datasets([ds, RANGE], seed=1),),
}
EXEMPT = {"options", "snapshot"}
"""What handles no elements; what writes them, where one that cannot be written ends the pipeline."""


def test_every_transformation_is_in_the_table() -> None:
    names = {name for name in (*vars(Grouping), *vars(Transformations)) if not name.startswith("_")}
    assert names - EXEMPT <= set(TABLE), "add it to the table"


@pytest.mark.parametrize("name", TABLE)
def test_a_hostile_element_ends_no_pipeline(name: str) -> None:
    for way, make in enumerate(TABLE[name]):
        for kind in KINDS:
            found, errors = read(make(source(kind)))
            where = f"{name}, way {way}, {kind.__name__}"
            assert not any(type(error) is ad.StageError for error in errors), where
            for error in errors:
                notes = getattr(error, "__notes__", [])
                assert "this error ended the pipeline" not in notes, where
                assert any("element" in note for note in notes), where
            others = {"batch": 2, "ignore_errors": 2}.get(name, 1)
            assert len(found) >= others or name in {"unbatch", "rebatch", "pack_sequences", "flat_map"}, where


def read(ds: ad.Dataset[Any]) -> tuple[list[Any], list[Exception]]:
    """Return the elements of a dataset, and the errors in their places."""
    found: list[Any] = []
    errors: list[Exception] = []
    with ds.iterate() as elements:
        while len(errors) < 20:
            try:
                found.append(next(elements))
            except StopIteration:
                break
            except Exception as error:
                errors.append(error)
    return found, errors


EXACT = {
    "apply": "0 1 * 3 4 5",
    "assert_cardinality": "0 1 * 3 4 5",
    "cache": "0 1 * 3 4 5",
    "concatenate": "0 1 * 3 4 5 0 1 2 3 4 5",
    "distinct": "0 1 ! 3 4 5",
    "enumerate": "(0,0) (1,1) (2,*) (3,3) (4,4) (5,5)",
    "interleave": "0 1 * 3 4 5",
    "join": "0 1 ! 3 4 5",
    "prefetch": "0 1 * 3 4 5",
    "rate_limit": "0 1 * 3 4 5",
    "repeat": "0 1 * 3 4 5 0 1 * 3 4 5",
    "scan": "0 1 * 3 4 5",
    "list_batch": ". . .",
    "shard": "0 * 4",
    "skip": "1 * 3 4 5",
    "take": "0 1 * 3 4",
    "with_options": "0 1 * 3 4 5",
    "zip": "(0,0) (1,1) (*,2) (3,3) (4,4) (5,5)",
    "choose_from_datasets": "0 0 ! 0 0 0",
}
"""What comes of each element, in its place: itself, a hostile one (`*`), or an error (`!`)."""

EITHER = {
    **dict.fromkeys(("batch", "padded_batch", "ragged_batch"), ("[0,1] ! [4,5]", "[0,1] . [4,5]")),
    "filter": ("1 ! 3 4 5", "1 * 3 4 5"),
    "ignore_errors": ("[0,1] [4,5]", "[0,1] . [4,5]"),
    "map": ("0 1 * 3 4 5", "0 1 ! 3 4 5"),
    "prefetch_to_device": ("0 1 * 3 4 5", "0 1 ! 3 4 5"),
    "take_while": ("1 ! 3 4 5", "1 * 3 4 5"),
    "unique": ("0 1 ! 3 4 5", "0 1 * 3 4 5"),
    "window": (". . .", ". ! .", "[0,1] ! [4,5]", "[0,1] . [4,5]"),
}
"""The same where a step uses what only some of the kinds refuse; a batch of objects and a window are a dot."""


@pytest.mark.parametrize("name", [*EXACT, *EITHER])
def test_what_fails_is_in_its_place_and_all_others_in_theirs(name: str) -> None:
    expected = EITHER.get(name) or (EXACT[name],)
    for way, make in enumerate(TABLE[name]):
        for kind in KINDS:
            assert places(make(source(kind))) in expected, f"{name}, way {way}, {kind.__name__}"


@pytest.mark.torch
@pytest.mark.parametrize("name", TABLE)
def test_the_same_where_pytorch_is_imported(name: str) -> None:
    """Steps look for tensors in elements then."""
    pytest.importorskip("torch")
    test_a_hostile_element_ends_no_pipeline(name)
    if name in EXACT or name in EITHER:
        test_what_fails_is_in_its_place_and_all_others_in_theirs(name)


def places(ds: ad.Dataset[Any]) -> str:
    """Return what is in each place of a dataset."""
    with ds.iterate() as elements:
        return " ".join(shown_places(elements))


def shown_places(elements: Iterator[Any]) -> Iterator[str]:
    for _ in range(20):
        try:
            yield shown(next(elements))
        except StopIteration:
            return
        except Exception:
            yield "!"


def shown(element: Any) -> str:
    if isinstance(element, KINDS):
        return "*"
    if type(element) is tuple:
        return f"({','.join(map(shown, element))})"
    if isinstance(element, (int, np.integer)):
        return str(int(element))
    if isinstance(element, np.ndarray) and element.dtype != object:
        return f"[{','.join(map(str, element.tolist()))}]"
    return "."


def test_the_error_is_the_elements_own_in_its_place() -> None:
    numbers = RANGE
    hostile = numbers.map(lambda x: Hostile() if x == 2 else x)
    for ds, step in (
        (hostile.unique(), "unique()"),
        (numbers.filter(lambda x: Hostile() if x == 2 else True), "filter"),
        (ad.Dataset.choose_from_datasets([numbers.repeat()] * 6, hostile), "choose_from_datasets"),
        (numbers.bucket_by_token_count(1, lambda x: Hostile() if x == 2 else 1, buffer_size=1), "bucket_by"),
        (numbers.balance(lambda x: Hostile() if x == 2 else 1, 1, 1, 0), "balance"),
    ):
        found, errors = read(ds)
        assert len(found) == 5, step
        (error,) = errors
        assert type(error) is OwnError
        (note,) = error.__notes__
        assert step in note
        assert "element 2" in note
