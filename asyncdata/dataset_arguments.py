"""Checks of the arguments of `Dataset`'s methods, and the results of methods that return no dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from asyncdata.elements.structure import spec_of
from asyncdata.elements.tensors import dataloader_hint
from asyncdata.errors import PlanError, StructureError
from asyncdata.executors.function_call import Call
from asyncdata.graph.node import Node, check_called
from asyncdata.options import INFINITE_CARDINALITY, Options
from asyncdata.transformation_arguments import check_structures
from asyncdata.transformations import dataset_for

__all__ = (
    "MethodOfClass",
    "check_plan",
    "check_reduce",
    "check_repeatable",
    "length",
    "named_plans_of",
    "plans_of",
    "reduced",
    "single",
    "spec_of_first",
    "state_without_epoch",
)

T = TypeVar("T")


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
