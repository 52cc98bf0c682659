"""Nested elements: stack, unstack, slice, describe, check and measure them.

`tree` defines which values are a structure.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.promotion import check_table, in_one_dtype, unchanged
from asyncdata.elements.ragged import Ragged
from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.tensors import (
    any_tensor,
    as_array,
    is_tensor,
    is_tensor_like,
    numpy_dtype,
    stack_tensors,
    tensor_bytes,
)
from asyncdata.elements.tree import LEAVES, TreeLevel, is_arrow, open_level
from asyncdata.elements.validation import check_dtype, check_unmasked
from asyncdata.errors import PlanError, StructureError
from asyncdata.memory.buffer_pool import LARGE, joined

__all__ = (
    "LEAVES",
    "TreeLevel",
    "are_objects",
    "as_arrays",
    "check_all_tensors",
    "check_joined",
    "check_signature",
    "common_spec",
    "conform",
    "endless",
    "leading_dimension",
    "leaves_of",
    "map_leaves",
    "nbytes",
    "objects",
    "open_level",
    "paired",
    "prefixed",
    "rows_of",
    "same_structure",
    "shared_spec",
    "slice_rows",
    "spec_of",
    "stack",
    "unprefixed",
    "unstack",
)

CURES = {
    "shape": "make them equal, or use padded_batch, ragged_batch, list_batch or bucket_by_sequence_length",
    "parts": "make them equal, with the same number of parts in each",
}
"""Advice for leaves that do not match, by what differs."""

NUMBERS: dict[type, Any] = {int: np.int64, float: np.float64, bool: np.bool_, complex: np.complex128}

PLAIN: Final = frozenset({str, bytes, type(None)})
"""Types of leaves that make a batch an array of objects."""

PLAIN_FUNCTION: Final[Any] = getattr(np.ndarray, "__array_function__")  # noqa: B009  the type is partly unknown

IN_MEMORY: Final = (dict, UserDict, MappingProxyType)
"""Mappings whose parts are in memory."""


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves of a structure, in its order."""
    level = open_level(value)
    try:
        return [value] if level is None else [leaf for part in level.parts for leaf in leaves_of(part)]
    except RecursionError:
        raise endless(value) from None


def map_leaves(fn: Callable[[Any, str], Any], value: Any, where: str = "") -> Any:
    """Return the structure with each leaf replaced by `fn(leaf, path)`."""
    level = open_level(value)
    if level is None:
        return fn(value, where)
    pairs = zip(level.parts, level.names, strict=True)
    try:
        return level.rebuild([map_leaves(fn, part, where + name) for part, name in pairs])
    except RecursionError:
        raise endless(value) from None


def stack(column: list[Any], where: str = "") -> Any:
    """Stack elements of one structure into one element whose leaves have a new first axis.

    Python ints become int64, floats float64, bools bool; arrays are stacked under NumPy's rules; `str`, `bytes`
    and other objects become an object array, PyTorch tensors a tensor. Raises `StructureError` that names leaf, element
    and both shapes.
    """
    kinds = set(map(type, column))
    if len(kinds) > 1:
        return stack_mixed(column, kinds, where)
    kind = kinds.pop()
    if kind is np.ndarray:
        return stack_arrays(column, where)
    if kind in NUMBERS:
        return numbers_of(kind, column, where)
    if kind is tuple:
        check_same(column, list(map(len, column)), "parts", where)
        return tuple([stack(list(part), f"{where}[{i}]") for i, part in enumerate(zip(*column, strict=True))])
    if kind is dict:
        return stack_dicts(column, where)
    return stack_other(column, kind, where)


def stack_dicts(column: list[dict[Any, Any]], where: str) -> dict[Any, Any]:
    first = column[0]
    same = list(map(len, column)).count(len(first)) == len(column)
    try:
        parts = [list(map(itemgetter(key), column)) for key in first] if same else []
    except KeyError:
        same, parts = False, []
    if not same:
        raise other_keys(column, where)
    try:
        return {key: stack(part, f"{where}[{key!r}]") for key, part in zip(first, parts, strict=True)}
    except RecursionError:
        raise endless(first) from None


def endless(value: Any) -> StructureError:
    """Return the error for a value with too many levels."""
    return StructureError(f"a {type(value).__name__} contains itself, or is nested too deeply: give its parts in a map")


def other_keys(column: list[dict[Any, Any]], where: str) -> StructureError:
    """Return the error for dicts whose keys differ."""
    first = column[0].keys()
    odd = next(index for index, element in enumerate(column) if element.keys() != first)
    return StructureError(
        f"{leaf(where)} of element {odd} of the batch has keys {list(column[odd])}, that of element 0 has {list(first)}"
    )


def stack_other(column: list[Any], kind: type[Any], where: str) -> Any:
    """Stack values that are neither arrays, Python numbers, tuples nor dicts."""
    if is_number(kind):
        return numbers(column, where)
    if is_tensor_like(column[0]):
        return stack_leaves_of_torch(column, where)
    if issubclass(kind, np.ma.MaskedArray):
        return stack_masked(column, where)
    if stacks_itself(kind):
        return np.stack(column)
    if kind is list or (kind not in LEAVES and hasattr(kind, "__array__") and not issubclass(kind, np.generic)):
        return stack_arrays([array_of(value, index, where) for index, value in enumerate(column)], where)
    return stack_parts(column, where)


def stack_parts(column: list[Any], where: str) -> Any:
    """Stack the parts of values of one class; values without parts become objects."""
    if open_level(column[0]) is None:  # as are all of its class
        return records(column) if type(column[0]) is np.void else objects(column)
    levels = [open_level(value) for value in column]
    opened = [level for level in levels if level is not None]
    opened = [arranged(level, opened[0].names) for level in opened]
    check_same(column, [level.names for level in opened], "parts", where)
    parts = zip(*[level.parts for level in opened], opened[0].names, strict=True)
    try:
        return opened[0].rebuild([stack(list(part), where + name) for *part, name in parts])
    except RecursionError:
        raise endless(column[0]) from None


def stacks_itself(kind: type[Any]) -> bool:
    """Return whether a class of arrays has its own way to stack them, as those with units have (NEP 18)."""
    return getattr(cast("Any", kind), "__array_function__", PLAIN_FUNCTION) is not PLAIN_FUNCTION


def check_joined(column: list[Any], where: str) -> None:
    """Raise `StructureError` for arrays with their own way to stack: joined in another way they lose their unit."""
    kinds = list[type[Any]](map(type, column))
    for kind in set(kinds):
        if stacks_itself(kind):
            raise StructureError(
                f"{leaf(where)} of element {kinds.index(kind)} of the batch is a {kind.__name__}, which would lose its "
                "unit or other attributes: make it an array in a map, or use batch"
            )


def records(column: list[np.void]) -> npt.NDArray[Any]:
    """Return records as an array of their dtype; as objects if their dtypes differ."""
    dtypes = {record.dtype for record in column}
    return np.array(column, np.result_type(dtypes.pop())) if len(dtypes) == 1 else objects(column)


def stack_leaves_of_torch(column: list[Any], where: str) -> Any:
    """Stack tensors of one shape; `StructureError` if some leaves are not tensors."""
    check_all_tensors(column, where)
    check_same(column, [tuple(tensor.shape) for tensor in column], "shape", where)
    return stack_tensors(column)


def check_all_tensors(column: list[Any], where: str) -> None:
    """Raise `StructureError` if some leaves are tensors and others are not."""
    tensors = [is_tensor_like(value) for value in column]
    if not all(tensors):
        odd = tensors.index(not tensors[0])
        kinds = [f"a {type(column[place]).__name__}" for place in (odd, 0)]
        raise StructureError(
            f"{leaf(where)} of element {odd} of the batch is {kinds[0]}, that of element 0 is {kinds[1]}; make all of "
            "them tensors with torch.as_tensor, or arrays with .numpy(), in a map"
        )


def arranged(level: TreeLevel, names: list[str]) -> TreeLevel:
    """Return a level with its parts in the order of `names`, if its parts have these names."""
    if level.names == names or sorted(level.names) != sorted(names):
        return level
    by_name = dict(zip(level.names, level.parts, strict=True))
    return TreeLevel([by_name[name] for name in names], names, level.rebuild)


def is_number(kind: type[Any]) -> bool:
    return kind in NUMBERS or (issubclass(kind, np.generic) and not issubclass(kind, (np.character, np.void)))


def stack_mixed(column: list[Any], kinds: set[type[Any]], where: str) -> Any:
    """Stack a column of several types: numbers and arrays mix under NumPy's rules, other leaves become objects, and so
    do values beside None, which are missing."""
    if are_objects(kinds):
        return objects(column)
    check_alike(column, where)
    if any_tensor(column):
        return stack_leaves_of_torch(column, where)
    others = {kind for kind in kinds if not is_number(kind)}
    if not others:
        return numbers(column, where)
    if any(map(is_masked, column)) and all(kind is list or issubclass(kind, np.ndarray) for kind in others):
        arrays = [value if is_masked(value) else array_of(value, index, where) for index, value in enumerate(column)]
        return stack_masked(arrays, where)
    if others <= {np.ndarray, list}:
        return stack_arrays([array_of(value, index, where) for index, value in enumerate(column)], where)
    return objects(column)


def are_objects(kinds: set[type[Any]]) -> bool:
    """Return whether leaves of these types are an array of objects: texts, bytes and None, with or without numbers."""
    return not kinds.isdisjoint(PLAIN) and all(kind in PLAIN or is_number(kind) for kind in kinds)


def check_alike(column: list[Any], where: str) -> None:
    """Raise if some values have parts, unless all are of one type, or missing."""
    there = [place for place, value in enumerate(column) if value is not None]
    structured = [open_level(column[place]) is not None for place in there]
    kinds: list[type[Any]] = [type(column[place]) for place in there]
    if any(structured) and kinds.count(kinds[0]) < len(kinds):
        odd = structured.index(not structured[0]) if not all(structured) else first_change(kinds)
        raise StructureError(
            f"{leaf(where)} of element {there[odd]} of the batch is a {kinds[odd].__name__}, "
            f"that of element {there[0]} a {kinds[0].__name__}"
        )


def stack_arrays(column: list[npt.NDArray[Any]], where: str) -> npt.NDArray[Any]:
    shapes = [array.shape for array in column]
    check_same(column, shapes, "shape", where)
    column = in_one_dtype(column, leaf(where))
    if not shapes[0]:
        return np.stack(column) if column[0].dtype == object else np.array(column)
    join = joined if column[0].nbytes * len(column) >= LARGE else np.concatenate
    return join(column).reshape((len(column), *shapes[0]))


def stack_masked(column: list[Any], where: str) -> Any:
    """Stack arrays of one shape, some of which have a mask."""
    check_same(column, [array.shape for array in column], "shape", where)
    typed = [array for array in column if array is not np.ma.masked]
    if typed:  # NumPy's constant for a masked number is a float64, whatever array it was read from
        hidden = np.ma.array(np.zeros((), typed[0].dtype), mask=True)
        column = [hidden if array is np.ma.masked else array for array in column]
    made = np.ma.stack(in_one_dtype(column, leaf(where)))
    masks = [array for array in typed if is_masked(array)]
    if len({(array.dtype, repr(array.fill_value)) for array in masks}) == 1:
        made.fill_value = masks[0].fill_value
    if masks and all(array.hardmask for array in masks):
        made.harden_mask()
    return made


def array_of(value: Any, index: int, where: str) -> npt.NDArray[Any]:
    check_unmasked(value, f"{leaf(where)} of element {index} of the batch")
    try:
        return asarray(value)
    except ValueError as error:
        cure = "; return a tuple if these are several values, as a list is one" if isinstance(value, list) else ""
        raise StructureError(f"{leaf(where)} of element {index} of the batch is not an array: {error}{cure}") from None


def asarray(value: Any) -> npt.NDArray[Any]:
    """Return an array-like as an array; strings as objects, since NumPy's strings lose zeros at their end."""
    array = as_array(value) if is_tensor(value) else unchanged(value)
    check_table(value, array)
    if array.dtype.kind not in "US":
        return array
    return array.astype(object) if isinstance(value, np.ndarray) else np.asarray(value, dtype=object)


def numbers_of(kind: type, column: list[Any], where: str) -> npt.NDArray[Any]:
    """Return numbers of one type as an array, twice as fast as if their types were not known."""
    try:
        return np.fromiter(column, NUMBERS[kind], len(column))
    except OverflowError:  # the code below names the element
        return numbers(column, where)


def numbers(column: list[Any], where: str) -> npt.NDArray[Any]:
    kinds = set(map(type, column))
    if len(kinds) == 1 and kinds.isdisjoint((int, np.datetime64, np.timedelta64)):  # of one dtype
        return np.array(column)
    limit = 2**63 if kinds == {int} else 2**64
    odd = next((i for i, one in enumerate(column) if isinstance(one, int) and not -(2**63) <= one < limit), None)
    if odd is not None:
        raise StructureError(f"{leaf(where)} of element {odd} of the batch does not fit int64: {column[odd]}")
    return np.array(in_one_dtype([*map(np.asarray, column)], leaf(where)))


def objects(column: list[Any]) -> npt.NDArray[Any]:
    """Return an array of objects, each unchanged."""
    return np.fromiter(column, object, len(column))


def check_same(column: list[Any], traits: list[Any], name: str, where: str) -> None:
    """Raise unless all `traits` (shapes, lengths, names of parts) are equal to the first."""
    if traits.count(traits[0]) != len(column):
        odd = first_change(traits)
        raise StructureError(
            f"{leaf(where)} of element {odd} of the batch has {name} {traits[odd]}, "
            f"that of element 0 has {name} {traits[0]}; {CURES.get(name, 'make them equal')}"
        )


def first_change(traits: list[Any]) -> int:
    return next(index for index, trait in enumerate(traits) if trait != traits[0])


def leaf(where: str) -> str:
    return f"leaf {where}" if where else "the value"


class LeadingDimension(NamedTuple):
    """The size of the first axis that all leaves share, or the reason why there is none."""

    rows: int
    problem: str | None


def leading_dimension(value: Any) -> LeadingDimension:
    """Find the size of the first axis of all leaves of `value`."""
    found: list[tuple[str, int | None]] = []

    def look(part: Any, where: str) -> None:
        shape: tuple[int, ...] = (len(part),) if isinstance(part, list) else getattr(part, "shape", ())  # pyright: ignore[reportUnknownArgumentType]
        found.append((where, shape[0] if shape else None))

    map_leaves(look, value)
    if not found:
        return LeadingDimension(0, "it has no leaves")
    for where, rows in found:
        if rows is None:
            return LeadingDimension(0, f"{leaf(where)} is a scalar and has no first axis")
        if rows != found[0][1]:
            return LeadingDimension(0, f"{leaf(where)} has {rows} rows, {leaf(found[0][0])} has {found[0][1]}")
    return LeadingDimension(found[0][1] or 0, None)


def unstack(value: Any) -> list[Any]:
    """Return the elements of which `value` is the stack: views of arrays, NumPy scalars, objects."""
    rows, problem = leading_dimension(value)
    if problem is not None:
        raise StructureError(f"cannot split an element along its first axis: {problem}")
    return rows_of(value, rows)


def rows_of(value: Any, rows: int) -> list[Any]:
    """Return the elements along the first axis of the leaves of `value`, which has `rows` rows."""
    level = open_level(value)
    if level is None:
        if is_masked(value) and value.ndim == 1:  # masked scalars have no dtype
            return [value[row, ...] for row in range(rows)]
        return list(value.detach()) if is_tensor_like(value) else list(value)
    if not level.parts:  # there is no column to give the number of rows
        return [level.rebuild(()) for _ in range(rows)]
    columns = [rows_of(part, rows) for part in level.parts]
    if type(value) is tuple:
        return list(zip(*columns, strict=True))
    if type(value) is dict:
        keys = list(cast("dict[Any, Any]", value))
        return [dict(zip(keys, parts, strict=False)) for parts in zip(*columns, strict=True)]
    return [level.rebuild(parts) for parts in zip(*columns, strict=True)]


def is_masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray)


def slice_rows(value: Any, start: int, stop: int) -> list[Any]:
    """Return rows `start` to `stop` of a structure of arrays as elements."""
    return rows_of(map_leaves(lambda part, _: part[start:stop], value), stop - start)


def as_arrays(value: Any, *leaves: type[Any], tensors: bool = False, where: str = "") -> Any:
    """Return the structure with lists and other array-likes as NumPy arrays; strings become object arrays.

    A `Ragged` or a masked array is not changed. With `tensors`, tensors are not changed either, and lists of them
    become one tensor. Values of the types `leaves` are not changed, and lists of them become object arrays.
    """
    leaves = (*leaves, np.ma.MaskedArray)

    def convert(part: Any, where: str) -> Any:
        kind: type[Any] = type(part)  # pyright: ignore[reportUnknownVariableType]
        if isinstance(part, (str, bytes, Ragged, *leaves)) or part is None or is_arrow(part) or stacks_itself(kind):
            return part
        if is_tensor(part):
            return part if tensors else as_array(part)[()]
        if is_tensor_like(part) or issubclass(kind, Mapping):  # of a mapping NumPy would take the keys alone
            return part
        try:
            array = stack([convert(one, where) for one in part]) if begins_with(part, leaves) else asarray(part)
        except ValueError as error:
            raise PlanError(f"{leaf(where)} is not an array: {error}") from None
        return array if array.ndim or isinstance(part, np.ndarray) or is_tensor(array) else array[()]

    return map_leaves(convert, value, where)


def begins_with(value: Any, kinds: tuple[type[Any], ...]) -> bool:
    """Return whether a list, or its first nested list, begins with an object of one of these types."""
    while isinstance(value, (list, tuple)) and value:
        value = cast("Sequence[Any]", value)[0]
    return isinstance(value, kinds) or is_tensor(value)


def conform(value: Any, signature: Any, where: str = "") -> Any:
    """Return `value` converted to `signature` (a structure of `TensorSpec`), or raise `StructureError`."""
    if isinstance(signature, TensorSpec):
        return signature.conform(value, leaf(where))
    want, got = open_level(signature), open_level(value)
    if want is None:
        raise PlanError(f"a signature is made of TensorSpec, got {signature!r}")
    if got is None or sorted(got.names) != sorted(want.names):
        found = type(value).__name__ if got is None else f"parts {got.names}"
        raise StructureError(f"{leaf(where)}: expected parts {want.names}, got {found}")
    by_name = dict(zip(got.names, got.parts, strict=True))
    pairs = zip(want.names, want.parts, strict=True)
    return want.rebuild([conform(by_name[name], part, where + name) for name, part in pairs])


def check_signature(argument: str, signature: Any) -> Any:
    """Return a structure of `TensorSpec`; raise `PlanError` if it contains anything else."""

    def check(part: Any, where: str) -> None:
        if not isinstance(part, TensorSpec):
            cure = ": make the list a tuple" if isinstance(part, list) else ""
            raise PlanError(f"{argument} is made of asyncdata.TensorSpec, {leaf(where)} is {part!r:.80}{cure}")

    map_leaves(check, signature)
    return signature


def same_structure(one: Any, other: Any) -> bool:
    """Return whether two structures have the same parts by the same names, whatever their leaves."""
    first, second = open_level(one), open_level(other)
    if first is None or second is None:
        return first is second
    parts = dict(zip(second.names, second.parts, strict=True))
    return sorted(first.names) == sorted(second.names) and all(
        same_structure(part, parts[name]) for name, part in zip(first.names, first.parts, strict=True)
    )


def paired(types: Any, shapes: Any) -> Any:
    """Return the signature for tf.data's older pair `output_types`, `output_shapes`; `PlanError` if they differ."""
    level = open_level(types)
    if level is None:
        cure = " (a structure is a tuple or a dict, not a list)" if isinstance(types, list) else ""
        dtype = check_dtype(f"from_generator(output_types=){cure}", types)
        sizes = shapes if hasattr(shapes, "__iter__") else ()
        if any(size is not None and not hasattr(size, "__index__") for size in sizes):
            raise shape_mismatch(types, shapes)
        return TensorSpec(shapes, dtype)
    if shapes is None:
        return level.rebuild([paired(part, None) for part in level.parts])
    opened = open_level(shapes)
    if opened is None or sorted(opened.names) != sorted(level.names):
        raise shape_mismatch(types, shapes)
    by_name = dict(zip(opened.names, opened.parts, strict=True))
    pairs = zip(level.names, level.parts, strict=True)
    return level.rebuild([paired(part, by_name[name]) for name, part in pairs])


def shape_mismatch(types: Any, shapes: Any) -> PlanError:
    """Return the error for shapes whose structure differs from that of the dtypes."""
    return PlanError(
        f"from_generator(output_shapes=) needs a shape for each dtype, in the structure of {types!r:.80}, "
        f"got {shapes!r:.80}"
    )


def spec_of(value: Any) -> Any:
    """Describe an element: a structure of `TensorSpec`."""

    def describe(part: Any, _: str) -> TensorSpec:
        if isinstance(part, (np.ndarray, np.generic, bool, int, float, complex, list)):
            try:
                array = np.asarray(part)
            except ValueError:  # lists of several lengths in a list
                return TensorSpec((len(cast("list[Any]", part)),), object)
            return TensorSpec(array.shape, array.dtype)
        if is_tensor(part):
            return TensorSpec(None if getattr(part, "is_nested", False) else part.shape, numpy_dtype(part))
        return RaggedTensorSpec(part.shape, part.dtype) if isinstance(part, Ragged) else TensorSpec((), object)

    return map_leaves(describe, value)


def common_spec(first: Any, other: Any, where: str = "") -> Any:
    """Return the spec that fits two elements with these specs: sizes that differ become `None`.

    Raises `StructureError` if their structures or dtypes differ.
    """
    one, two = open_level(first), open_level(other)
    if one is None or two is None:
        if first == other:
            return first
        if one is not two or type(first) is not type(other) or first.dtype != other.dtype:
            raise StructureError(f"{leaf(where)} is {other}, and {first} before")
        if first.shape is None or other.shape is None or len(first.shape) != len(other.shape):
            return type(first)(None, first.dtype)
        pairs = zip(first.shape, other.shape, strict=True)
        return type(first)([size if size == that else None for size, that in pairs], first.dtype)
    if sorted(one.names) != sorted(two.names) or type(first) is not type(other):
        raise StructureError(f"{leaf(where)} has parts {two.names}, and {one.names} before")
    theirs = dict(zip(two.names, two.parts, strict=True))
    named = zip(one.names, one.parts, strict=True)
    return one.rebuild([common_spec(part, theirs[name], where + name) for name, part in named])


def shared_spec(signatures: Sequence[Any]) -> Any:
    """Return the spec that fits elements with any of these signatures; `None` if one is unknown or they conflict."""
    if any(one is None for one in signatures):
        return None
    try:
        return reduce(common_spec, signatures)
    except StructureError:
        return None


def nbytes(value: Any) -> int:
    """Return the approximate size of an element in bytes; one that cannot be measured counts as a plain object."""
    if isinstance(value, (np.ndarray, Ragged)):
        return value.nbytes + 100
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in LEAVES:
        return sys.getsizeof(value)
    try:
        if issubclass(kind, Mapping) and not issubclass(kind, IN_MEMORY):
            return sys.getsizeof(value)
        level = open_level(value)
        if level is not None:
            return sum(map(nbytes, level.parts)) + 100
        return tensor_bytes(value) + 100 if is_tensor(value) else sys.getsizeof(value)
    except Exception:  # noqa: BLE001  its `__sizeof__` may raise, or a field may be unreadable
        return object.__sizeof__(value)


def prefixed(signature: Any, size: int | None) -> Any:
    """Return the signature of a batch of elements with a signature; `None` if that is unknown."""
    return None if signature is None else map_leaves(lambda spec, _: spec.stacked(size), signature)


def unprefixed(signature: Any) -> tuple[int | None, Any]:
    """Return the number of rows of each element, and the spec of a row; `None` for what is unknown."""
    rows: set[int | None] = set()

    def row(spec: Any, _: str) -> TensorSpec:
        rows.add(spec.shape[0] if spec.shape else None)
        return spec.row()

    inner = None if signature is None else map_leaves(row, signature)
    return (rows.pop() if len(rows) == 1 else None), inner
