"""The parts of `tf.data.experimental` that tf.data does not have elsewhere, by the same names: readers of tables,
functions on datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from asyncdata.dataset import Dataset
from asyncdata.iterator import DatasetIterator
from asyncdata.options import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.readers.csv import CsvDataset
from asyncdata.readers.make_csv_dataset import make_csv_dataset
from asyncdata.readers.sql import SqlDataset
from asyncdata.transforms.group_by_reducer import Reducer

__all__ = (
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "CsvDataset",
    "Reducer",
    "SqlDataset",
    "assert_cardinality",
    "at",
    "cardinality",
    "from_list",
    "get_structure",
    "group_by_reducer",
    "make_csv_dataset",
    "pad_to_cardinality",
)

T = TypeVar("T")

OLD: Final = {
    "Counter": "Dataset.counter()",
    "RandomDataset": "Dataset.random()",
    "TFRecordWriter": "asyncdata.TFRecordWriter",
    "dense_to_ragged_batch": "Dataset.ragged_batch()",
    "enumerate_dataset": "Dataset.enumerate()",
    "make_batched_features_dataset": "TFRecordDataset() and Dataset.map() with asyncdata.parse_example",
    "make_saveable_from_iterator": "DatasetIterator.state_dict()",
    "map_and_batch": "Dataset.map() and Dataset.batch()",
    "parallel_interleave": "Dataset.interleave(num_parallel_calls=)",
    "parse_example_dataset": "Dataset.map() with asyncdata.parse_example",
    "shuffle_and_repeat": "Dataset.shuffle() and Dataset.repeat()",
}
"""Names that TensorFlow still has for old programs, and their equivalents; names of methods are not listed."""


def at(dataset: Dataset[T], index: int) -> T:
    """Return element `index` alone: `dataset.at(index)`.

    >>> import asyncdata as ad
    >>> ad.experimental.at(ad.Dataset.range(10).map(lambda x: x * x), 3)
    9
    """
    return dataset.at(index)


def cardinality(dataset: Dataset[Any]) -> int:
    """Return the number of elements as far as it is known: `dataset.cardinality()`.

    >>> import asyncdata as ad
    >>> ad.experimental.cardinality(ad.Dataset.range(10).repeat()) == ad.experimental.INFINITE_CARDINALITY
    True
    """
    return dataset.cardinality()


def from_list(elements: list[Any]) -> Dataset[Any]:
    """Return the dataset of the elements of a list: `Dataset.from_list(elements)`.

    >>> import asyncdata as ad
    >>> list(ad.experimental.from_list([[1], [2, 3]]))
    [array([1]), array([2, 3])]
    """
    return Dataset.from_list(elements)


def get_structure(dataset_or_iterator: Dataset[Any] | DatasetIterator[Any]) -> Any:
    """Return the structure of elements, as `TensorSpec`s: `element_spec` of a dataset or an iterator.

    >>> import asyncdata as ad
    >>> ad.experimental.get_structure(ad.Dataset.range(3).batch(2))
    TensorSpec(shape=(None,), dtype=int64)
    """
    return dataset_or_iterator.element_spec


def assert_cardinality(expected_cardinality: int) -> Callable[[Dataset[T]], Dataset[T]]:
    """Return a transformation for `apply` that states the number of elements: `Dataset.assert_cardinality`.

    >>> import asyncdata as ad
    >>> odd = ad.Dataset.range(10).filter(lambda x: x % 2)
    >>> len(odd.apply(ad.experimental.assert_cardinality(5)))
    5
    """
    return lambda dataset: dataset.assert_cardinality(expected_cardinality)


def pad_to_cardinality(cardinality: int, mask_key: str = "valid") -> Callable[[Dataset[Any]], Dataset[Any]]:
    """Return a transformation for `apply` that adds elements of zeros up to a number: `Dataset.pad_to_cardinality`.

    >>> import asyncdata as ad
    >>> list(ad.Dataset.range(1).apply(ad.experimental.pad_to_cardinality(2)))
    [(0, True), (0, False)]
    """
    return lambda dataset: dataset.pad_to_cardinality(cardinality, mask_key)


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Callable[[Dataset[Any]], Dataset[Any]]:
    """Return a transformation for `apply` that folds the elements of each key into one: `Dataset.group_by_reducer`.

    >>> import asyncdata as ad
    >>> total = ad.Reducer(lambda key: 0, lambda state, x: state + x, lambda state: state)
    >>> list(ad.Dataset.range(5).apply(ad.experimental.group_by_reducer(lambda x: x % 2, total)))
    [6, 4]
    """
    return lambda dataset: dataset.group_by_reducer(key_func, reducer)


def missing(name: str) -> NoReturn:
    """Name the equivalent of a name that is not here."""
    known = f"Dataset.{name}()" if not name.startswith("_") and hasattr(Dataset, name) else OLD.get(name)
    hint = "" if known is None else f"; use {known}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)


if not TYPE_CHECKING:  # to a type checker a name that is not here is an error
    __getattr__ = missing
