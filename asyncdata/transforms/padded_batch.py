"""padded_batch: consecutive elements stacked into one, filled up where their shapes differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter, gt, itemgetter
from struct import Struct
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.promotion import in_one_dtype
from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.structure import (
    TreeLevel,
    array_of,
    check_all_tensors,
    check_joined,
    check_same,
    endless,
    leaf,
    map_leaves,
    objects,
    open_level,
    stack,
    stack_arrays,
)
from asyncdata.elements.tensors import any_tensor, check_integers, loaded, stack_tensors
from asyncdata.errors import PlanError, StructureError
from asyncdata.graph.node import Node
from asyncdata.memory.buffer_pool import empty
from asyncdata.transforms.batch import Batch

__all__ = ("PaddedBatch", "Padding", "are_sequences", "fitting", "join_leaves")

Array = npt.NDArray[Any]
Dims = Sequence[int | None]

rank_of = attrgetter("ndim")
dtype_of = attrgetter("dtype")

LITTLE: Final = 1 << 20
"""Batches of no more bytes are worth being copied twice, if they need fewer steps."""


@dataclass(frozen=True)
class Padding:
    """The padded shapes and padding values of leaves: structures like an element's, or `None`.

    With a `bound` that is the size of every dimension which is `None` in `shapes`, or of the first one without them.
    """

    shapes: Any = None
    values: Any = None
    bound: int | None = None

    @staticmethod
    def of(method: str, shapes: Any, values: Any) -> Padding:
        """Return the padding for the user's arguments; `PlanError` if the shapes are invalid."""
        shapes = [shapes] if isinstance(shapes, (int, np.integer)) else shapes  # of an element that is one leaf
        shapes = map_leaves(lambda part, _: part.tolist() if isinstance(part, np.ndarray) else part, shapes)
        map_leaves(lambda part, _: check_shape(method, part), shapes)
        return Padding(shapes, values)

    def stack(self, column: list[Any]) -> Any:
        """Stack elements of one structure."""
        return join_leaves(column, self.leaf, "", self.shapes, self.values)

    def leaf(self, column: list[Any], where: str, shape: Any, value: Any) -> Any:
        """Stack one leaf of every element."""
        if are_sequences(column):
            return self.sequences(column, where, shape, value)
        if any_tensor(column):
            return self.tensors(column, where, shape, value)
        if not shape and not any(isinstance(one, (list, np.ndarray)) for one in column):
            return stack(column, where)
        check_joined(column, where)
        arrays, of_one_dtype = arrays_of(column, where)
        shapes = [array.shape for array in arrays]
        target = self.target(arrays, largest_of(column, shapes, where), shape, where)
        if shapes.count(target) == len(shapes):
            return stack_arrays(arrays, where)
        if not of_one_dtype:
            arrays = in_one_dtype(arrays, leaf(where))
        return filled(arrays, target, value, {one[1:] for one in shapes} == {target[1:]}, where)

    def sequences(self, column: list[Array], where: str, shape: Any, value: Any) -> Array:
        """Stack one-dimensional arrays of numbers of one dtype."""
        lengths = [*map(len, column)]
        target = self.target(column, (max(lengths),), shape, where)
        if lengths.count(target[0]) < len(lengths):
            return filled(column, target, value, True, where)
        return stack_arrays(column, where)

    def tensors(self, column: list[Any], where: str, shape: Any, value: Any) -> Any:
        """Stack tensors, each filled up."""
        check_all_tensors(column, where)
        shapes = [tuple(tensor.shape) for tensor in column]
        target = self.target(column, largest_of(column, shapes, where), shape, where)
        return stack_tensors(column) if shapes.count(target) == len(shapes) else filled_tensors(column, target, value)

    def target(self, arrays: list[Array], largest: tuple[int, ...], shape: Any, where: str) -> tuple[int, ...]:
        """Return the shape that all are filled up to."""
        if shape is None and self.bound is None:
            return largest
        wanted = self.wanted(len(largest), shape, where)
        found = tuple([most if size is None else size for size, most in zip(wanted, largest, strict=True)])
        if any(map(gt, largest, found)):
            index, odd = next((index, one.shape) for index, one in enumerate(arrays) if any(map(gt, one.shape, found)))
            raise StructureError(
                f"{leaf(where)} of element {index} of the batch has shape {odd}, which is larger than the padded "
                f"shape {found}"
            )
        return found

    def wanted(self, rank: int, shape: Any, where: str) -> Dims:
        """Return the requested shape, with as many dimensions as the leaf has."""
        if shape is None:
            return [self.bound, *[None] * (rank - 1)][:rank]
        if isinstance(shape, (int, np.integer)):
            shape = [shape]
        if not isinstance(shape, (list, tuple)):
            raise StructureError(f"the padded shape of {leaf(where)} must be a list, as {[shape]}, got {shape!r:.80}")
        wanted = [None if size in (None, -1) else size for size in cast("Sequence[Any]", shape)]
        if len(wanted) != rank or any(isinstance(size, (tuple, list, dict)) for size in wanted):
            raise StructureError(f"{leaf(where)} has rank {rank}, but its padded_shapes is {wanted}")
        return [self.bound if size is None else size for size in wanted]

    def check(self, method: str, signature: Any) -> None:
        """Raise `PlanError` if it is known already that this does not fit the elements."""
        if signature is None:
            return

        def fits(column: list[Any], where: str, shape: Any, value: Any) -> TensorSpec:
            (spec,) = column
            if spec.shape is not None and not isinstance(spec, RaggedTensorSpec):
                wanted = spec.shape if shape is None else self.wanted(len(spec.shape), shape, where)
                if any(
                    limit is not None and size is not None and size > limit for size, limit in zip(spec.shape, wanted)
                ):
                    raise StructureError(
                        f"{leaf(where)} has shape {spec.shape}, which cannot be padded to {tuple(wanted)}"
                    )
                if value is not None and (None in spec.shape or tuple(wanted) != spec.shape):
                    fitting(value, spec.dtype, where)
            return spec

        try:
            join_leaves([signature], fits, "", self.shapes, self.values)
        except StructureError as error:
            raise PlanError(f"{method}: {error}") from None

    def signature(self, signature: Any, size: int | None) -> Any:
        """Return the signature of a batch of these elements; `None` if theirs is not known."""
        if signature is None:
            return None

        def padded(column: list[Any], where: str, shape: Any) -> TensorSpec:
            (spec,) = column
            if spec.shape is None or isinstance(spec, RaggedTensorSpec):
                return spec.stacked(size)
            wanted = spec.shape if shape is None else self.wanted(len(spec.shape), shape, where)
            return TensorSpec((size, *wanted), spec.dtype)

        return join_leaves([signature], padded, "", self.shapes)


def largest_of(column: list[Any], shapes: list[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """Return the smallest shape into which all fit; raise `StructureError` if they have different ranks."""
    if len({*map(len, shapes)}) > 1:
        check_same(column, [shapes[0] if len(one) == len(shapes[0]) else one for one in shapes], "shape", where)
    return tuple(map(max, zip(*shapes, strict=True)))


def check_shape(method: str, part: Any) -> None:
    """Raise unless this is a size, `None`, or a list of these."""
    sizes: list[Any] = cast("list[Any]", part) if isinstance(part, list) else [part]
    for size in sizes:
        if isinstance(size, (tuple, list, dict)):
            map_leaves(lambda inner, _: check_shape(method, inner), size)
        elif size is not None and not (hasattr(size, "__index__") and size >= -1):
            raise PlanError(f"{method}(padded_shapes=) is made of shapes, sizes or None, got {size!r:.80}")


def join_leaves(column: list[Any], join: Callable[..., Any], where: str, *guides: Any) -> Any:
    """Return the structure that all elements have, with `join(leaves, path, ...)` in the place of each leaf.

    `guides` are structures like it with a value for each leaf; a single value, also `None`, is for all leaves.
    """
    first, kinds = open_level(column[0]), [*map(type, column)]
    if first is None and kinds.count(kinds[0]) == len(kinds):
        return join(column, where, *guides)
    columns = None if first is None else columns_of(column, {*kinds})
    if first is None or columns is None:
        levels = [open_level(element) for element in column]
        if type(None) in kinds and any(level is not None for level in levels):
            return stack(column, where)
        check_same(column, [level and sorted(level.names) for level in levels], "parts", where)
        if first is None:
            return join(column, where, *guides)
        rows = [dict(zip(level.names, level.parts, strict=True)) for level in levels if level is not None]
        columns = [[row[name] for row in rows] for name in first.names]
    opened = list(zip(*[guiding(guide, first, where) for guide in guides], strict=True)) or [()] * len(first.names)
    pairs = zip(columns, first.names, opened, strict=True)
    try:
        return first.rebuild([join_leaves(part, join, where + name, *inner) for part, name, inner in pairs])
    except RecursionError:
        raise endless(column[0]) from None


def columns_of(column: list[Any], kinds: set[type[Any]]) -> list[list[Any]] | None:
    """Return each part of all elements, of dicts of the same strings in one order, or tuples of one length.

    `None` for others, which take longer.
    """
    if kinds == {tuple} and len(set(map(len, column))) == 1:
        return [*map(list, zip(*column, strict=True))]
    keys = [*column[0]] if kinds == {dict} else []
    if {*map(type, keys)} == {str} and all(map(keys.__eq__, map(list, column))):
        return [[*map(itemgetter(key), column)] for key in keys]
    return None


def guiding(guide: Any, element: TreeLevel, where: str) -> Iterable[Any]:
    """Return a guide's values for the parts of an element, by their order or their names."""
    level = open_level(guide)
    if level is None and not isinstance(guide, list):
        return [guide] * len(element.names)
    parts = cast("list[Any]", guide) if level is None else level.parts
    if level is not None and sorted(level.names) == sorted(element.names):
        return map(dict(zip(level.names, parts, strict=True)).__getitem__, element.names)
    if isinstance(guide, dict) or len(parts) != len(element.names):
        raise StructureError(f"{leaf(where)} has parts {element.names}, but its padding is given as {guide!r}")
    return parts


def are_sequences(column: list[Any]) -> bool:
    """Return whether all are one-dimensional arrays of numbers of one dtype, as most are that are padded."""
    first, count = column[0], len(column)
    if type(first) is not np.ndarray or first.ndim != 1 or (dtype := first.dtype).kind not in "biufc":
        return False
    if [*map(type, column)].count(np.ndarray) < count or [*map(dtype_of, column)].count(dtype) < count:
        return False
    return [*map(rank_of, column)].count(1) == count


def arrays_of(column: list[Any], where: str) -> tuple[list[Array], bool]:
    """Return leaves as arrays, and whether they are of one dtype."""
    arrays, equal = column, False
    plain = set(map(type, column)) == {np.ndarray}
    if plain:
        dtypes = [*map(dtype_of, column)]
        equal = dtypes.count(dtypes[0]) == len(dtypes)
        plain = not any(dtype.kind in "US" for dtype in (dtypes[:1] if equal else dtypes))
    if not plain:
        arrays = [array_of(one, index, where) for index, one in enumerate(column)]
        equal = len({array.dtype for array in arrays}) == 1
    return arrays, equal


def filled(arrays: list[Array], target: tuple[int, ...], value: Any, at_the_end: bool, where: str) -> Array:
    """Return arrays of one dtype as one in the machine's byte order, each padded; `at_the_end` if the padding follows
    all of an array's memory."""
    native = arrays[0].dtype.isnative
    dtype = arrays[0].dtype if native else arrays[0].dtype.newbyteorder("=")
    shape = (len(arrays), *target)
    if dtype.kind in "biufc":
        fill = None if value is None else np.array(fitting(value, dtype, where), dtype)
        little = at_the_end and native and prod(shape) * dtype.itemsize <= LITTLE
        if little and (fill is None or not any(fill.tobytes())):
            return packed(arrays, np.empty(shape, dtype))
        out = empty(shape, dtype)
        out.fill(0 if fill is None else fill)
    elif value is None and dtype.kind != "O":
        out = np.zeros(shape, dtype)
    else:
        out = np.empty(shape, dtype)
        out.fill(empty_like(arrays) if value is None else fitting(value, dtype, where))
    if len(target) == 1:
        places, start = out.reshape(-1), 0
        for array in arrays:
            places[start : start + len(array)] = array
            start += target[0]
    else:
        for place, array in enumerate(arrays):
            out[(place, *map(slice, array.shape))] = array
    return out


def packed(arrays: list[Array], out: Array) -> Array:
    """Return rows of the dtype of some arrays, into which they are copied, each filled up with zeros.

    `struct` does that with bytes, and needs a third of the time that it takes to fill all and to find each its place.
    """
    rows = Struct(f"{out.strides[0]}s" * len(arrays))  # not struct.pack, which caches a hundred formats
    rows.pack_into(out.data, 0, *map(np.ndarray.tobytes, arrays))
    return out


def common_tensor_dtype(column: Sequence[Any]) -> Any:
    """Return the dtype that can hold the numbers of some tensors, by torch's promotion rules."""
    torch, dtype = loaded(), column[0].dtype
    for tensor in column:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def filled_tensors(column: Sequence[Any], shape: Sequence[int], value: Any) -> Any:
    """Stack tensors, each padded to a shape with `value`, zero if it is `None`.

    `StructureError` for a value that the dtype cannot represent.
    """
    torch, dtype = loaded(), common_tensor_dtype(column)
    out = torch.full((len(column), *shape), 0, dtype=dtype, device=column[0].device)
    if value is not None:
        try:
            held = torch.as_tensor(value, dtype=dtype, device="cpu")
            same = not held.ndim and is_equal(np.asarray(held.item()), value)
        except (RuntimeError, TypeError, ValueError, OverflowError):
            held, same = None, False
        if not same:
            raise StructureError(f"padding_values: {value!r:.80} does not fit {dtype}, the dtype of the tensors")
        out.fill_(held)
    for place, (row, tensor) in enumerate(zip(out, column, strict=True)):
        filled = tuple(map(slice, tensor.shape))
        row[filled] = tensor.detach()
        check_integers(tensor, row[filled], place)
    return out


def empty_like(arrays: list[Array]) -> Any:
    """Return the padding of objects: empty strings or bytes if the first object is one, else `None`."""
    first = next((array.flat[0] for array in arrays if array.size), None)
    return type(first)() if isinstance(first, (str, bytes)) else None


def is_equal(held: Array, value: Any) -> bool:
    """Return whether a padding value is unchanged as a number of an array, as integers are not in all floats."""
    given = np.asarray(value)
    if given.dtype.kind in "iu":
        return given.ndim == 0 and bool(held.item() == given.item())
    return np.array_equal(held, given, equal_nan=held.dtype.kind in "fcmM")


def fitting(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Return a padding value that a dtype can hold exactly, as it is; `StructureError` if it cannot."""
    if dtype.kind == "O":
        return objects([value])[0]
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            held = np.asarray(value).astype(dtype)
        same = held.ndim == 0 and is_equal(held, value)
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise StructureError(f"padding_values: {value!r:.80} does not fit {dtype}, the dtype of {leaf(where)}")
    return value


@dataclass(frozen=True, eq=False)
class PaddedBatch(Batch):
    """Every `size` consecutive elements as one, their leaves filled up to one shape and stacked."""

    padding: Padding = field(default=Padding(), repr=False)

    stacks = False

    @staticmethod
    def of(plan: Node, size: int, drop_remainder: bool, padding: Padding) -> PaddedBatch:
        """Return the node; `PlanError` if it is known already that the padding does not fit the elements."""
        padding.check("padded_batch", plan.signature)
        return PaddedBatch(plan, size, drop_remainder, padding)

    @property
    def kind(self) -> str:
        return "padded_batch"

    @property
    def takes_sequences(self) -> bool:
        """Whether elements are known to be one-dimensional arrays of numbers of one dtype.

        Then they need not be checked, which takes half as long as copying them. A function may have put another value
        into a dict, so this holds only for elements that are arrays themselves.
        """
        found = vars(self)  # not `cached_property`: its lock, up to Python 3.11, would stay held in a forked child
        if "_takes_sequences" not in found:
            spec = self.input.signature
            known = isinstance(spec, TensorSpec) and spec.shape is not None and len(spec.shape) == 1
            found["_takes_sequences"] = known and spec.dtype.kind in "biufc"
        return found["_takes_sequences"]

    def join(self, items: list[Any]) -> Any:
        if self.takes_sequences and {*map(type, items)} == {np.ndarray}:
            return self.padding.sequences(items, "", self.padding.shapes, self.padding.values)
        return self.padding.stack(items)

    @property
    def signature(self) -> Any:
        return self.padding.signature(self.input.signature, self.size if self.drop_remainder else None)

    def label(self) -> str:
        shapes = "" if self.padding.shapes is None else f", {self.padding.shapes}"
        return f"padded_batch({self.size}{shapes}{', drop_remainder=True' if self.drop_remainder else ''})"
