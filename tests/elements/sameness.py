"""In what two values differ: in type, dtype or content, each kind by its own rules."""

from __future__ import annotations

import collections
import dataclasses
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

import asyncdata as ad

__all__ = ("difference",)

DEEPEST = 60
"""Values that contain themselves are compared down to this depth."""


def difference(got: Any, want: Any, where: str = "it", depth: int = 0) -> str:
    """Return in what a value differs from another one; nothing if it is the same."""
    kind: type[Any] = type(want)
    if type(got) is not kind:
        return f"{where} is a {name_of(type(got))}, not a {name_of(kind)}"
    if depth > DEEPEST:
        return ""
    compare = next((compare for holds, compare in RULES if holds(want)), of_objects)
    return compare(got, want, where, depth + 1)


def name_of(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def first(words: Iterable[str]) -> str:
    return next(filter(None, words), "")


def of_numbers(got: Any, want: Any, where: str, _: int) -> str:
    return "" if repr(got) == repr(want) else f"{where} is {got!r}, not {want!r}"


def of_ragged(got: Any, want: Any, where: str, depth: int) -> str:
    pairs = ((got.values, want.values), (got.row_splits, want.row_splits))
    return first(difference(one, two, where, depth) for one, two in pairs)


def of_mappings(got: Any, want: Any, where: str, depth: int) -> str:
    if [*map(repr, got)] != [*map(repr, want)]:
        return f"{where} has keys {[*got]}, not {[*want]}"
    parts = first(difference(got[key], want[key], f"{where}[{key!r}]", depth) for key in want)
    return parts or ("" if type(want) is collections.ChainMap else of_attributes(got, want, where, depth))


def of_sequences(got: Any, want: Any, where: str, depth: int) -> str:
    if len(got) != len(want):
        return f"{where} has {len(got)} parts, not {len(want)}"
    pairs = enumerate(zip(got, want, strict=True))
    parts = first(difference(one, two, f"{where}[{place}]", depth) for place, (one, two) in pairs)
    return parts or of_attributes(got, want, where, depth)


def of_dataclasses(got: Any, want: Any, where: str, depth: int) -> str:
    names = [field.name for field in dataclasses.fields(want)]
    parts = first(difference(getattr(got, name), getattr(want, name), f"{where}.{name}", depth) for name in names)
    return parts or of_attributes(got, want, where, depth, names)


def of_attributes(got: Any, want: Any, where: str, depth: int, fields: Sequence[str] = ()) -> str:
    one, two = getattr(got, "__dict__", {}), getattr(want, "__dict__", {})
    if [*one] != [*two]:
        return f"{where} has attributes {[*one]}, not {[*two]}"
    return first(difference(one[name], two[name], f"{where}.{name}", depth) for name in two if name not in fields)


def is_tensor(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def of_tensors(got: Any, want: Any, where: str, _: int) -> str:
    traits = [
        (one.dtype, one.device, one.layout, one.is_quantized, vars(one).get("layout_of_boxes")) for one in (got, want)
    ]
    if traits[0] != traits[1]:
        return f"{where} is {traits[0]}, not {traits[1]}"
    if want.is_nested:
        pairs = zip(got.unbind(), want.unbind(), strict=True)
        return first(of_tensors(one, two, where, 0) for one, two in pairs)
    if got.shape != want.shape:
        return f"{where} has shape {got.shape}, not {want.shape}"
    same = want.device.type == "meta" or bytes_of(got) == bytes_of(want)
    return "" if same else f"{where} has other numbers"


def bytes_of(tensor: Any) -> bytes:
    torch = sys.modules["torch"]
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    numbers = dense.int_repr() if dense.is_quantized else dense.detach().resolve_conj()
    return numbers.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def of_masked(got: Any, want: Any, where: str, _: int) -> str:
    if want is np.ma.masked:
        return "" if got is np.ma.masked else f"{where} is {got!r}, not masked"
    one, two = [(m.dtype, m.shape, m.hardmask, repr(m.fill_value), repr(m.tolist())) for m in (got, want)]
    return "" if one == two else f"{where} is {one}, not {two}"


def of_arrays(got: Any, want: Any, where: str, depth: int) -> str:
    one, two = [(value.dtype, value.dtype.metadata or None, value.shape) for value in (got, want)]
    if one != two:
        return f"{where} is an array of {one}, not {two}"
    if isinstance(want, (np.bytes_, np.str_)):
        return "" if got == want and len(got) == len(want) else f"{where} is {got!r}, not {want!r}"
    if want.dtype == object:
        return difference(got.ravel().tolist(), want.ravel().tolist(), where, depth)
    if want.dtype.hasobject or want.dtype.char in "gGT" or want.dtype.names:
        same = repr(got.tolist()) == repr(want.tolist())
    else:
        same = got.tobytes() == want.tobytes()
    if not same:
        return f"{where} has other values: {got!r:.80}"
    return of_attributes(got, want, where, depth) if type(want).__module__.startswith("tests") else ""


def of_tensordicts(got: Any, want: Any, where: str, depth: int) -> str:
    if got.batch_size != want.batch_size or [*got.keys()] != [*want.keys()]:
        return f"{where} is {got!r}, not {want!r}"
    return first(difference(got[key], want[key], f"{where}[{key!r}]", depth) for key in want.keys())  # noqa: SIM118  they iterate over rows


def of_jax(got: Any, want: Any, where: str, depth: int) -> str:
    if got.dtype != want.dtype:
        return f"{where} has dtype {got.dtype}, not {want.dtype}"
    if "key" in str(want.dtype):
        got, want = [sys.modules["jax"].random.key_data(one) for one in (got, want)]
    return difference(np.asarray(got), np.asarray(want), where, depth)


def of_frames(got: Any, want: Any, where: str, _: int) -> str:
    return "" if got.equals(want) else f"{where} is {got!r}, not {want!r}"


def of_objects(got: Any, want: Any, where: str, depth: int) -> str:
    with suppress(Exception):
        if got is want or got == want:
            return ""
    if repr(got) == repr(want) and " at 0x" not in repr(want):
        return ""
    for name in ("args", "toarray", "collect"):  # of exceptions, of SciPy, of lazy frames
        if hasattr(want, name):
            one, two = [getattr(value, name) for value in (got, want)]
            return difference(*([one, two] if name == "args" else [one(), two()]), where, depth)
    if isinstance(want, types.SimpleNamespace) or type(want).__eq__ is object.__eq__:
        return of_attributes(got, want, where, depth)
    return f"{where} is {got!r:.60}, not {want!r:.60}"


SEQUENCES = (list, tuple, collections.deque, collections.UserList)

RULES: list[tuple[Callable[[Any], Any], Callable[[Any, Any, str, int], str]]] = [
    (lambda want: type(want).__module__.partition(".")[0] == "tensordict", of_tensordicts),
    (is_tensor, of_tensors),
    (lambda want: isinstance(want, np.ma.MaskedArray), of_masked),
    (lambda want: isinstance(want, (np.ndarray, np.generic)), of_arrays),
    (lambda want: isinstance(want, (float, complex)), of_numbers),
    (lambda want: isinstance(want, ad.Ragged), of_ragged),
    (lambda want: isinstance(want, Mapping), of_mappings),
    (lambda want: isinstance(want, SEQUENCES), of_sequences),
    (lambda want: dataclasses.is_dataclass(want) and not isinstance(want, type), of_dataclasses),
    (lambda want: type(want).__module__.partition(".")[0] in {"jax", "jaxlib"}, of_jax),
    (lambda want: hasattr(want, "equals"), of_frames),
]
"""How values are compared: by the first rule that holds."""
