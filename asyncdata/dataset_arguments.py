"""Checks of the arguments of `Dataset`'s methods, and the results of methods that return no dataset."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction
from os import PathLike
from typing import Any, TypeVar, cast

from asyncdata.elements.structure import check_signature, paired, spec_of
from asyncdata.elements.tensors import dataloader_hint
from asyncdata.errors import PlanError, StructureError
from asyncdata.executors.function_call import Call
from asyncdata.graph.node import Node, check_called
from asyncdata.options import INFINITE_CARDINALITY, Options
from asyncdata.sources.in_memory import Getter, Range
from asyncdata.transformation_arguments import check_structures
from asyncdata.transformations import dataset_for
from asyncdata.transforms.map import Map

__all__ = (
    "MethodOfClass",
    "arguments_of",
    "async_iterable_for",
    "check_generator",
    "check_plan",
    "check_reduce",
    "check_repeatable",
    "iterable_for",
    "length",
    "named_plans_of",
    "plan_of_source",
    "plans_of",
    "reduced",
    "signature_for",
    "single",
    "spec_of_first",
    "state_without_epoch",
)

T = TypeVar("T")


def signature_for(types: Any, shapes: Any, signature: Any) -> Any:
    """Return the signature given to `from_generator` in one of two forms; `PlanError` if both or half of one are
    given."""
    if signature is not None and (types is not None or shapes is not None):
        raise PlanError("from_generator takes output_signature, or output_types and output_shapes, and got both")
    if types is None and shapes is not None:
        raise PlanError("from_generator(output_shapes=) needs output_types as well; or give output_signature alone")
    if types is not None:
        return paired(types, shapes)
    return None if signature is None else check_signature("from_generator(output_signature=)", signature)


def arguments_of(args: Any) -> tuple[Any, ...]:
    """Return the arguments of a generator; `PlanError` if they are not a list."""
    if args is not None and (not isinstance(args, Sequence) or isinstance(args, (str, bytes))):
        raise PlanError(f"from_generator(args=) is a tuple of arguments, as ({args!r:.40},), got {args!r:.80}")
    return () if args is None else tuple(cast("Sequence[Any]", args))


class MethodOfClass(staticmethod):  # pyright: ignore[reportMissingTypeArgument]  it takes none at run time
    """A static method that cannot be called on a dataset: `a.zip(b)` would leave `a` out."""

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        function: Any = self.__func__
        if instance is not None:
            name = function.__name__
            raise AttributeError(f"{name} is a method of the class: Dataset.{name}(...) of all datasets")
        return function


def check_plan(plan: object) -> Node:
    """Return `plan`; `PlanError` if it is none: `Dataset([1, 2])` is a mistake."""
    if not isinstance(plan, Node):
        raise PlanError(
            f"Dataset() needs a plan, got {plan!r:.60}: data becomes a dataset by Dataset.from_list, from_iterable, "
            "from_tensor_slices or from_source"
        )
    return plan


def check_generator(generator: object) -> None:
    """Raise `PlanError` unless this is a function that may return an iterable."""
    if not callable(generator):
        raise PlanError(f"from_generator needs a function that returns an iterable, got {generator!r}")
    if isasyncgenfunction(generator):
        raise PlanError(f"from_generator needs a plain function, got {generator!r}: give it to from_async_iterable")
    if iscoroutinefunction(generator):
        raise PlanError(
            f"from_generator needs a plain function, got {generator!r}: give an async generator to from_async_iterable"
        )


def async_iterable_for(value: Any) -> AsyncIterable[Any]:
    """Return the argument of `from_async_iterable`; `PlanError` if it is not an asynchronous iterable."""
    from asyncdata.sources.iterators import Restarted

    if isasyncgenfunction(value):
        return Restarted(value)
    if not hasattr(value, "__aiter__"):
        raise PlanError(
            f"from_async_iterable needs an object with __aiter__ or an async generator function, got {value!r}"
        )
    return value


def iterable_for(value: Any) -> Iterable[Any]:
    """Return the argument of `from_iterable`; `PlanError` if it is not iterable."""
    if not hasattr(value, "__iter__"):
        cure = ""
        if isfunction(value):
            cure = f": give it to {'from_async_iterable' if isasyncgenfunction(value) else 'from_generator'}"
        elif hasattr(value, "__aiter__"):
            cure = ": give it to from_async_iterable"
        raise PlanError(f"from_iterable needs an iterable, got {value!r}{cure}")
    return value


def names_in(source: Any) -> list[Any]:
    """Return the names of what is in a mapping, such as a group of HDF5, or in a group of Zarr."""
    return [*source] if isinstance(source, Mapping) or hasattr(source, "array_keys") else []


def plan_of_source(source: Any, num_parallel_calls: int | None) -> Map:
    """Return the plan that reads the elements of a source by their numbers."""
    from asyncdata.sources.array_rows import ArrayRows, is_array_in_file

    if is_array_in_file(source):
        source = ArrayRows(source)
    if isinstance(source, (str, bytes, PathLike)):  # whose elements would be its characters
        raise PlanError(
            f"from_source needs an open array or another object with rows, got {source!r:.80}; open a file first, as "
            "by h5py.File(path)[name] or zarr.open_array(path, mode='r'), or use the class for its format"
        )
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
        raise PlanError(f"from_source needs an object with __len__ and __getitem__, got {source!r:.80}")
    if hasattr(source, "iloc"):  # of pandas: a number in brackets is a label there
        given = "dict(frame)" if hasattr(source, "columns") else "it"
        raise PlanError(
            f"from_source needs elements with numbers, and this {type(source).__name__} has labels; give {given} to "
            "from_tensor_slices"
        )
    names = names_in(source)
    if names and 0 not in names:
        raise PlanError(
            f"from_source needs elements with numbers, and this {type(source).__name__} has names, {names!r:.80}; give "
            f"one of its values, such as source[{names[0]!r}]"
        )
    return Map.of(Range(range(len(source))), Getter(source), num_parallel_calls, None, "thread")


def plans_of(method: str, datasets: Any) -> tuple[tuple[Node, ...], Options]:
    """Return the plans of a list of datasets, and their merged options."""
    if not isinstance(datasets, (list, tuple)) or not datasets:
        raise PlanError(f"{method} needs a list of datasets, at least one, got {datasets!r:.80}")
    given = cast("Sequence[Any]", datasets)
    return merged_plans(method, {f"dataset {place}": dataset for place, dataset in enumerate(given)})


def named_plans_of(method: str, datasets: Any) -> tuple[tuple[str, ...], tuple[Node, ...], Options]:
    """Return the names of datasets, none if they are given as a list, their plans, and their merged options."""
    from asyncdata.transforms.mixture_weights import check_names

    if not isinstance(datasets, Mapping):
        return (), *plans_of(method, datasets)
    if not datasets:
        raise PlanError(f"{method} needs datasets, at least one, got {datasets!r:.80}")
    given = cast("Mapping[Any, Any]", datasets)
    return check_names(method, given), *merged_plans(method, {f"dataset {name!r}": ds for name, ds in given.items()})


def merged_plans(method: str, datasets: Mapping[str, Any]) -> tuple[tuple[Node, ...], Options]:
    """Return the plans of datasets, by their names in messages, and their merged options."""
    options, plans = Options(), dict[str, Node]()
    for name, value in datasets.items():
        dataset = dataset_for(method, value)
        plans[name] = dataset.plan
        options = options.merge(dataset.options())
    check_structures(method, {name: plan.signature for name, plan in plans.items()})
    return tuple(plans.values()), options


def state_without_epoch(state: Mapping[str, Any], epoch: int | None) -> Mapping[str, Any]:
    """Return `state`; raise `PlanError` if an epoch is given as well."""
    if epoch is not None:
        raise PlanError("iterate(state=, epoch=): give one of them, as a state has its epoch")
    return state


def check_reduce(call: Call) -> None:
    """Raise `PlanError` if a function cannot fold elements."""
    if call.is_async:
        raise PlanError(
            f"{call.label} is a coroutine function, but reduce does not await it: give a plain function, or use "
            "`async for`"
        )
    check_called(call, "a state and an element", ("state", "element"))


def reduced(elements: Iterator[Any], state: Any, fn: Callable[[Any, Any], Any]) -> Any:
    """Return the last state."""
    for element in elements:
        state = fn(state, element)
    return state


def single(elements: Sequence[T], method: str) -> T:
    """Return the only element."""
    if len(elements) != 1:
        raise StructureError(f"{method}: the dataset {'has more than one element' if elements else 'is empty'}")
    return elements[0]


def length(cardinality: int) -> int:
    """Return a cardinality as `len` does; `TypeError` if it is infinite or unknown."""
    if cardinality < 0:
        kind = "infinite" if cardinality == INFINITE_CARDINALITY else "unknown before it has been read"
        raise TypeError(f"the length of this dataset is {kind}; see cardinality(){dataloader_hint()}")
    return cardinality


def check_repeatable(plan: Node) -> None:
    """Raise `StructureError` if looking at an element would lose it."""
    if plan.once:
        raise StructureError("the source is an iterator, and looking at its first element would lose it")


def spec_of_first(elements: Sequence[Any]) -> Any:
    """Return the structure of the first element; `StructureError` if there is none."""
    if not elements:
        raise StructureError("an empty dataset has no element to describe")
    return spec_of(elements[0])
