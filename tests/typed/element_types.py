"""What type checkers say of datasets; at run time the first element of each must be of that type."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

import numpy as np
import numpy.typing as npt

from asyncdata import Dataset

Integers = npt.NDArray[np.int64]


class Pair(NamedTuple):
    left: Any
    right: Any


async def text(number: int) -> str:
    return str(number)


def total(x: int, y: int) -> int:
    return x + y


def drawn(x: int, rng: np.random.Generator) -> float:
    return x + rng.random()


def anything(value: object) -> Any:
    return value


def matrix() -> npt.NDArray[np.float32]:
    return np.zeros((4, 2), np.float32)


numbers = Dataset.range(4)
floats = matrix()
unknown = numbers.map(anything)
pairs = Dataset.zip(numbers, numbers.map(text))
named = numbers.map(lambda x: Pair(x, -x))
rows = Dataset.from_tensor_slices({"x": floats, "y": [1, 2, 3, 4]})

# sources
assert_type(numbers, Dataset[int])
assert_type(Dataset.range(3, output_type=np.int8), Dataset[np.int8])
assert_type(Dataset.range(3, output_type="int8"), Dataset[Any])
assert_type(Dataset.counter(), Dataset[int])
assert_type(Dataset.counter(dtype=np.uint8), Dataset[np.uint8])
assert_type(Dataset.random(1), Dataset[int])
assert_type(Dataset.from_tensors(floats), Dataset[npt.NDArray[np.float32]])
assert_type(Dataset.from_tensors("a"), Dataset[str])
assert_type(Dataset.from_tensors(True), Dataset[np.bool_])
assert_type(Dataset.from_tensors(3), Dataset[np.int64])
assert_type(Dataset.from_tensors((floats, [1])), Dataset[tuple[Any, Any]])
assert_type(Dataset.from_tensors([1, 2]), Dataset[Any])
assert_type(Dataset.from_list([True, False]), Dataset[np.bool_])
assert_type(Dataset.from_list([1, 2]), Dataset[np.int64])
assert_type(Dataset.from_list([1.5, 2.5]), Dataset[np.float64])
assert_type(Dataset.from_list(["a", "b"]), Dataset[str])
assert_type(Dataset.from_list([b"a"]), Dataset[bytes])
assert_type(Dataset.from_list([np.int8(1)]), Dataset[np.int8])
assert_type(Dataset.from_list([floats, floats]), Dataset[npt.NDArray[np.float32]])
assert_type(Dataset.from_list([[1], [2, 3]]), Dataset[npt.NDArray[Any]])
assert_type(Dataset.from_list([(1, "a"), (2, "b")]), Dataset[tuple[Any, Any]])
assert_type(Dataset.from_list([{"a": 1}]), Dataset[dict[str, Any]])
assert_type(Dataset.from_list([object()]), Dataset[Any])
assert_type(Dataset.from_tensor_slices([1, 2]), Dataset[np.int64])
assert_type(Dataset.from_tensor_slices([1, 2.5]), Dataset[np.float64])
assert_type(Dataset.from_tensor_slices(["a"]), Dataset[str])
assert_type(Dataset.from_tensor_slices([[1, 2]]), Dataset[npt.NDArray[Any]])
assert_type(Dataset.from_tensor_slices(floats), Dataset[Any])
assert_type(Dataset.from_tensor_slices((floats, [1, 2, 3, 4])), Dataset[tuple[Any, Any]])
assert_type(Dataset.from_tensor_slices(Pair([1], [2])), Dataset[Any])
assert_type(rows, Dataset[dict[str, Any]])
assert_type(Dataset.from_iterable("ab"), Dataset[str])
assert_type(Dataset.from_iterable([1, 2]), Dataset[int])
assert_type(Dataset.from_source(["a"]), Dataset[str])
assert_type(Dataset.from_source(range(3)), Dataset[int])
assert_type(Dataset.from_generator(lambda: iter("ab")), Dataset[str])
assert_type(Dataset.list_files(__file__), Dataset[str])

# functions
assert_type(numbers.map(lambda x: x + 1), Dataset[int])
assert_type(numbers.map(str, 2, pure=True), Dataset[str])
assert_type(numbers.map(text), Dataset[str])
assert_type(numbers.map(drawn, rng=True, seed=1), Dataset[float])
assert_type(numbers.map(lambda x: x / 2, batch=2), Dataset[Any])
assert_type(numbers.map(lambda x: x / 2, vectorized=True), Dataset[Any])
assert_type(pairs.map(lambda x, y: y * x), Dataset[str])
assert_type(Dataset.zip(numbers, numbers).map(total), Dataset[int])
assert_type(named.map(lambda pair: str(pair.left)), Dataset[str])
assert_type(unknown.map(text), Dataset[str])
assert_type(unknown.map(anything), Dataset[Any])
assert_type(Dataset.zip(unknown, unknown).map(total), Dataset[int])
assert_type(numbers.filter(lambda x: x > 1), Dataset[int])
assert_type(pairs.filter(lambda x, y: bool(x)), Dataset[tuple[int, str]])
assert_type(unknown.filter(bool), Dataset[Any])
assert_type(numbers.take_while(lambda x: x < 2), Dataset[int])
assert_type(numbers.scan(0, lambda state, x: (state + x, str(x))), Dataset[str])
assert_type(numbers.flat_map(lambda n: Dataset.range(n + 1).map(str)), Dataset[str])
assert_type(pairs.flat_map(lambda n, name: Dataset.from_iterable([name])), Dataset[str])
assert_type(numbers.interleave(lambda n: Dataset.from_iterable("ab"), 2), Dataset[str])
assert_type(numbers.apply(lambda ds: ds.map(str)), Dataset[str])
assert_type(numbers.group_by_window(lambda x: x % 2, lambda key, ds: ds.batch(2), 2), Dataset[Integers])

# several datasets
assert_type(pairs, Dataset[tuple[int, str]])
assert_type(Dataset.zip(numbers), Dataset[int])
assert_type(Dataset.zip((numbers, numbers)), Dataset[tuple[int, int]])
assert_type(Dataset.zip(numbers, pairs, numbers), Dataset[tuple[int, tuple[int, str], int]])
assert_type(Dataset.zip(numbers, numbers, numbers, numbers, numbers.map(str)), Dataset[tuple[int, int, int, int, str]])
assert_type(Dataset.zip({"a": numbers, "b": numbers}), Dataset[dict[str, Any]])
assert_type(numbers.concatenate(Dataset.from_iterable(["a"])), Dataset[int | str])
assert_type(Dataset.sample_from_datasets([numbers, Dataset.counter()], seed=1), Dataset[int])
assert_type(Dataset.choose_from_datasets([numbers, numbers], Dataset.from_list([0, 1])), Dataset[int])

# groups
assert_type(numbers.batch(2), Dataset[Integers])
assert_type(numbers.batch(2, True, 4), Dataset[Any])
assert_type(numbers.batch(2, within=1.0), Dataset[Integers])
assert_type(numbers.map(lambda x: x > 1).batch(2), Dataset[npt.NDArray[np.bool_]])
assert_type(numbers.map(float).batch(2), Dataset[npt.NDArray[np.float64]])
assert_type(numbers.map(str).batch(2), Dataset[npt.NDArray[np.object_]])
assert_type(Dataset.from_list([np.int8(1)]).batch(2), Dataset[npt.NDArray[np.int8]])
assert_type(numbers.batch(2).batch(2), Dataset[Integers])
assert_type(pairs.batch(2), Dataset[tuple[Any, Any]])
assert_type(named.batch(2), Dataset[Any])
assert_type(rows.batch(2), Dataset[dict[str, Any]])
assert_type(unknown.batch(2), Dataset[Any])
assert_type(numbers.batch(2).rebatch(3), Dataset[Integers])
assert_type(numbers.batch(2).unbatch(), Dataset[Any])
assert_type(pairs.batch(2).unbatch(), Dataset[tuple[Any, Any]])
assert_type(numbers.map(lambda x: [str(x)]).unbatch(), Dataset[str])
assert_type(numbers.window(2), Dataset[Dataset[int]])
assert_type(numbers.window(2).flat_map(lambda window: window.batch(2)), Dataset[Integers])
assert_type(pairs.window(2), Dataset[tuple[Any, Any]])
assert_type(rows.window(2), Dataset[dict[str, Any]])
assert_type(numbers.enumerate(), Dataset[tuple[int, int]])

# what keeps elements, and what is no dataset
assert_type(pairs.shuffle(2, seed=1).repeat(2).take(3).skip(1).cache().prefetch(), Dataset[tuple[int, str]])
assert_type(numbers.shard(2, 0), Dataset[int])
assert_type(numbers.shard(2, 0, pad_remainder=True), Dataset[tuple[int, bool]])


def loaders() -> None:
    """Not run: PyTorch may not be installed."""
    from torch import Tensor

    from asyncdata.integrations.loader import Loader

    assert_type(numbers.batch(2).loader(), Loader[Tensor])
    assert_type(pairs.batch(2).loader(), Loader[tuple[Any, Any]])
    assert_type(rows.batch(2).loader(device="cuda"), Loader[dict[str, Any]])
    assert_type(unknown.batch(2).loader(), Loader[Any])


def mistakes() -> None:
    """Not run: each line is an error to both checkers."""
    numbers.map(len)  # type: ignore[arg-type]
    numbers.map(total)  # type: ignore[arg-type]
    numbers.map(drawn)  # type: ignore[arg-type]
    pairs.map(text)  # type: ignore[arg-type]
    pairs.map(total)  # type: ignore[arg-type]
    numbers.filter(len)  # type: ignore[arg-type]
    numbers.flat_map(str)  # type: ignore[arg-type]
    numbers.interleave(len)  # type: ignore[arg-type]
    numbers.batch(2).map(text)  # type: ignore[arg-type]
    numbers.loader(batch_size=2)  # type: ignore[call-arg]
