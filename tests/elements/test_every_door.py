"""Every value, through every way on which elements travel: the same type, dtype and value, or an error."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import map_leaves
from asyncdata.formats.element_codec import encode_element
from tests.elements.sameness import difference
from tests.elements.table import CONTAINERS, VALUES, Make, optional

PACKAGES = [
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("jax", marks=pytest.mark.integrations),
    pytest.param("transformers", marks=pytest.mark.integrations),
    pytest.param("tensordict", marks=pytest.mark.integrations),
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
    if isinstance(value, Mapping) and any(hasattr(value, name) for name in ("getall", "multi_items")):
        return value
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
    large = [(make(), np.zeros(20_000)) for make in makes.values()]  # these travel in shared memory
    ds = ad.Dataset.from_iterable([*items, *large]).map(same, executor="process", num_parallel_calls=1)
    found = [one[0] if isinstance(one, (list, tuple)) else one for one in read(ds, 2 * len(makes))]
    for part in (found[: len(makes)], found[len(makes) :]):
        assert differences(makes, part, UNSENT.__contains__, rebuilt) == {}


@pytest.mark.parametrize("group", GROUPS)
def test_to_a_pipeline_in_a_process_of_its_own(group: str) -> None:
    makes = {name: make for name, make in values_of(group).items() if name not in UNSENT}
    ds = ad.Dataset.from_iterable([make() for make in makes.values()])
    found = read(ds.with_options(ad.Options(placement="process")), len(makes))
    assert differences(makes, found, never, rebuilt) == {}


def stored(value: Any) -> Any:
    """Return a value as files have it: mapped arrays are arrays."""
    return np.asarray(value) if type(value) is np.memmap else rebuilt(value)


@pytest.mark.parametrize("group", GROUPS)
def test_to_a_file_and_back(group: str, tmp_path: Path) -> None:
    makes, refused = values_of(group), set[str]()
    for name, make in makes.items():
        try:
            encode_element(make())
        except ad.StructureError:
            refused.add(name)
    kept = {name: make for name, make in makes.items() if name not in refused}
    ds = ad.Dataset.from_iterable([make() for make in kept.values()])
    ways = [ds.cache(str(tmp_path / "cache")), ds.snapshot(str(tmp_path / "snapshot"))]
    for writing in ways:  # the elements as they are
        assert differences(kept, read(writing, len(kept)), never, rebuilt) == {}
    ds.save(str(tmp_path / "saved"))
    for reading in (*ways, ad.Dataset.load(str(tmp_path / "saved"))):
        assert differences(kept, read(reading, len(kept)), never, stored) == {}


@pytest.mark.parametrize("group", ["values", "containers"])
def test_what_a_file_cannot_hold_is_an_error_that_names_it(group: str) -> None:
    for name, make in values_of(group).items():
        value, words = make(), ""
        try:
            encode_element(value)
        except ad.StructureError as error:
            words = str(error)
        assert not words or named_in(value, words), f"{name}: {words}"


def named_in(value: Any, words: str) -> bool:
    """Return whether a text has the name of the type of a value, or of what is in it, or its dtype."""
    kinds = {type(value).__qualname__, str(getattr(value, "dtype", type(value).__name__))}
    parts: list[Any] = (
        [*value, *value.values()] if isinstance(value, Mapping) else [*value] if isinstance(value, tuple) else []
    )
    return any(kind in words for kind in kinds) or any(named_in(part, words) for part in parts)


def batched(value: Any) -> Any:
    """Return a value as a row of a batch has it: numbers and array-likes are NumPy's, in the machine's byte order."""

    def row(leaf: Any, _: str) -> Any:
        if isinstance(leaf, np.ma.MaskedArray):
            return np.ma.array(leaf) if leaf is np.ma.masked else leaf
        if type(leaf) in {bool, int, float, complex, list} or isinstance(leaf, np.ndarray):
            texts = type(leaf) is not np.ndarray and np.asarray(leaf).dtype.kind in "US"
            array = np.array(leaf, dtype=object if texts else None)
            array = array.astype(array.dtype.newbyteorder("=")) if array.dtype.char != "T" else array
            return array if array.ndim else array[()]
        return leaf

    return map_leaves(row, rebuilt(value))


UNBATCHED = {"big int", "list", "list of texts", "ragged list", "deque", "empty tuple", "empty dict", "masked constant"}
"""Values that a batch refuses, or whose rows are compared in other tests."""


@pytest.mark.parametrize("group", ["values", "containers"])
def test_to_a_batch_and_back(group: str) -> None:
    for name, make in values_of(group).items():
        if name in UNBATCHED or "recursive" in name or "metadata" in name:
            continue
        (row, *_) = read(ad.Dataset.from_iterable([make(), make()]).batch(2).unbatch(), 2)
        assert difference(row, batched(make())) == "", name


def listed(value: Any) -> Any:
    """Return a value as `from_list` has it: numbers and array-likes are NumPy's, with strings as objects."""

    def one(leaf: Any, _: str) -> Any:
        kept = (str, bytes, ad.Ragged, np.ma.MaskedArray, Mapping, type(None))
        if isinstance(leaf, kept) or hasattr(leaf, "is_nested"):  # tensors of PyTorch
            return leaf
        if type(leaf) is list and leaf and hasattr(leaf[0], "is_nested"):
            return pytest.importorskip("torch").stack(leaf)
        array = np.asarray(leaf)
        array = np.asarray(leaf, dtype=object) if array.dtype.kind in "US" else array
        return array if array.ndim or isinstance(leaf, np.ndarray) else array[()]

    return map_leaves(one, rebuilt(value))


def named_or_refused(name: str) -> bool:
    """Return whether `from_list` may refuse a value: by an error that says why."""
    return name in {"list", "ragged list"} or "recursive" in name or name.startswith(("pandas", "polars", "arrow"))


@pytest.mark.parametrize("group", ["values", "containers", "torch", "pandas", "transformers", "tensordict", "other"])
def test_from_a_list(group: str) -> None:
    odd: dict[str, str] = {}
    for name, make in values_of(group).items():
        try:
            (found, other) = ad.Dataset.from_list([make(), make()])
        except (ad.PlanError, ad.StructureError) as error:
            odd |= {} if named_or_refused(name) else {name: repr(error)}
            continue
        if words := difference(found, listed(make())) or difference(other, listed(make())):
            odd[name] = words
    assert odd == {}


UNTENSED = {"longdouble", "clongdouble", "np.longdouble", "ml_dtypes int4", "recursive dict", "recursive dataclass"}
"""Values of which torch has no tensors, and structures without end."""


def tensed(value: Any) -> Any:
    """Return a value as tensors have it."""
    torch = pytest.importorskip("torch")

    def tensor(leaf: Any, _: str) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)) or isinstance(leaf, np.ma.MaskedArray):
            return leaf
        array = np.array(leaf, order="C")
        if array.dtype.type.__module__ == "ml_dtypes":
            return torch.from_numpy(array.astype(np.float32)).to(getattr(torch, array.dtype.name))
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="))) if array.dtype.kind in "biufc" else leaf

    return map_leaves(tensor, rebuilt(value))


@pytest.mark.torch
@pytest.mark.parametrize("group", ["values", "containers", "torch", "other"])
def test_to_a_training_loop(group: str) -> None:
    makes = values_of(group)
    ds = ad.Dataset.from_iterable([make() for make in makes.values()])
    kept = {name: make for name, make in makes.items() if name not in UNTENSED}
    for through in (ds.to_torch(), ds.prefetch_to_device("cpu")):
        found = dict(zip(makes, read(through, len(makes)), strict=True))
        errors = [found[name] for name in makes if name in UNTENSED]
        assert all(isinstance(error, (ad.StructureError, TypeError)) for error in errors)
        assert differences(kept, [found[name] for name in kept], never, tensed) == {}


@pytest.mark.torch
@pytest.mark.parametrize("group", ["values", "containers", "torch"])
def test_to_a_trainer_from_a_process_of_its_own(group: str) -> None:
    makes = {name: make for name, make in values_of(group).items() if name not in UNSENT | UNTENSED}
    ds = ad.Dataset.from_iterable([make() for make in makes.values()])
    found = read(ds.with_options(ad.Options(placement="process")).loader(), len(makes))
    assert differences(makes, found, never, tensed) == {}


UNSENT_BY_WORKERS = {"generator", "memoryview", "dict views"}
"""Values that PyTorch's workers cannot pickle: nothing comes in their places, as docs/pytorch.md says."""

CHANGED_BY_PICKLE = {"masked, hard", "np.bytes_", "np.str_"}
"""Values that NumPy pickles as others, as PyTorch's workers do."""


def unchanged(value: Any) -> Any:
    return value


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch.utils.data", "asyncdata.torch"])
@pytest.mark.parametrize("group", ["values", "containers", "torch"])
def test_from_a_worker_of_a_dataloader(group: str, package: str) -> None:
    left_out = UNTENSED | UNSENT_BY_WORKERS | (CHANGED_BY_PICKLE if package.startswith("torch") else set())
    makes = {name: make for name, make in values_of(group).items() if name not in left_out}
    ds = ad.Dataset.from_iterable([make() for make in makes.values()]).to_torch()
    kind = pytest.importorskip(package).DataLoader
    found = read(kind(ds, batch_size=None, num_workers=1, collate_fn=unchanged, timeout=60), len(makes))
    assert differences(makes, found, never, tensed) == {}


@pytest.mark.integrations
@pytest.mark.parametrize("group", ["values", "containers"])
def test_to_a_device_of_jax(group: str) -> None:
    """Arrays of numbers become JAX's, of the same dtype, or an error names the dtype; other values stay."""
    jax = pytest.importorskip("jax")
    makes = values_of(group)
    ds = ad.Dataset.from_iterable([make() for make in makes.values()])
    with jax.enable_x64(True):
        found = dict(zip(makes, read(ds.prefetch_to_device(jax.devices("cpu")[0]), len(makes)), strict=True))
        assert all(isinstance(found[name], (ad.StructureError, TypeError)) for name in makes if name in REFUSED_BY_JAX)
        kept = {name: make for name, make in makes.items() if name not in REFUSED_BY_JAX}
        assert differences(kept, [found[name] for name in kept], never, of_jax) == {}


REFUSED_BY_JAX = UNTENSED
"""Values of which JAX has no arrays, and structures without end."""


def of_jax(value: Any) -> Any:
    """Return a value as a device of JAX has it."""
    jax = pytest.importorskip("jax")

    def array(leaf: Any, _: str) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)) or isinstance(leaf, np.ma.MaskedArray):
            return leaf
        return jax.numpy.asarray(leaf.astype(leaf.dtype.newbyteorder("="))) if leaf.dtype.kind in "biufc" else leaf

    return map_leaves(array, rebuilt(value))


STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "batch": lambda ds: ds.batch(1),
    "padded_batch": lambda ds: ds.padded_batch(1),
    "ragged_batch": lambda ds: ds.ragged_batch(1),
    "unbatch": lambda ds: ds.unbatch(),
    "window": lambda ds: ds.window(1),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["recursive dict", "recursive dataclass"])
def test_what_contains_itself_is_an_error_that_says_so(name: str, step: str) -> None:
    ds = ad.Dataset.from_iterable([CONTAINERS[name]()])
    with pytest.raises(ad.StructureError, match=r"a (dict|Record) contains itself"):
        list(STEPS[step](ds))
