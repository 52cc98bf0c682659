"""Tensors of PyTorch as elements: what goes in comes out, equal by value, and nobody can change another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.element_codec import decode_element, encode_element
from asyncdata.runtime.state_values import from_json_value, to_json_value

pytestmark = pytest.mark.torch

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8", "bool", "complex64")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def tensors(torch: Any, sizes: list[int]) -> ad.Dataset[Any]:
    return ad.Dataset.from_iterable(sizes).map(torch.arange)


def half(number: int) -> Any:
    import torch

    return {"x": torch.full((3,), number, dtype=torch.bfloat16), "y": torch.tensor(number)}


@pytest.mark.parametrize("name", DTYPES)
def test_a_batch_of_tensors_is_a_tensor_of_their_dtype(torch: Any, name: str) -> None:
    dtype = getattr(torch, name)
    ds = ad.Dataset.range(4).map(lambda i: torch.full((2,), i % 2).to(dtype)).batch(2)
    for batch in ds:
        assert type(batch) is torch.Tensor
        assert batch.dtype is dtype
        assert torch.equal(batch, torch.tensor([[0, 0], [1, 1]], dtype=dtype))


def test_a_batch_of_tensors_without_axes_is_a_tensor(torch: Any) -> None:
    (batch,) = ad.Dataset.range(3).map(torch.tensor).batch(3)
    assert torch.equal(batch, torch.arange(3))


@pytest.mark.parametrize(
    ("number", "of", "other"),
    [
        (3001, "int64", "bfloat16"),
        (2**24 + 1, "int32", "float32"),
        (2**60 + 1, "int64", "float64"),
        (2**63 - 1, "int64", "float32"),
        (70_000, "int32", "float16"),
        (2**24 + 1, "int64", "complex64"),
    ],
)
def test_an_integer_that_torch_would_change_in_a_batch_is_refused(torch: Any, number: int, of: str, other: str) -> None:
    def column(number: int) -> ad.Dataset[Any]:
        dtypes = [getattr(torch, name) for name in (of, other)]
        return ad.Dataset.from_iterable(
            [torch.tensor([number], dtype=dtypes[0]), torch.tensor([1, 1], dtype=dtypes[1])]
        )

    for join in (lambda ds: ds.padded_batch(2), lambda ds: ds.map(lambda x: x[:1]).batch(2)):
        with pytest.raises(ad.StructureError, match=f"element 0 of the batch has dtype torch.{of}, and would change"):
            list(join(column(number)))
        assert [batch.dtype for batch in join(column(256))] == [getattr(torch, other)]


def in_workers(ds: ad.Dataset[Any], _: str) -> list[Any]:
    return [*ds.map(as_it_is, executor="process", num_parallel_calls=1)]


def as_it_is(element: Any) -> Any:
    return element


def saved_and_read(ds: ad.Dataset[Any], folder: str) -> list[Any]:
    ds.save(folder)
    return [*ad.Dataset.load(folder)]


PLACES: dict[str, Callable[[ad.Dataset[Any], str], list[Any]]] = {
    "map": lambda ds, _: [*ds],
    "list": lambda ds, _: [*ad.Dataset.from_iterable([*ds])],
    "tensors": lambda ds, _: [one for own in ds for one in ad.Dataset.from_tensors(own)],
    "memory": lambda ds, _: [*ds.cache().repeat(2)],
    "file": lambda ds, folder: [*ds.cache(folder).repeat(2)],
    "snapshot": saved_and_read,
    "encoded": lambda ds, _: [decode_element(encode_element(one)) for one in ds],
    "shuffle": lambda ds, _: [*ds.shuffle(3, seed=1)],
    "state": lambda ds, _: [from_json_value(to_json_value(one)) for one in ds],
    "processes": in_workers,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("place", PLACES)
def test_leaves_keep_that_they_have_gradients(torch: Any, place: str, dtype: str, tmp_path: Path) -> None:
    def make(i: int) -> Any:
        return {"x": torch.full((2,), i, dtype=getattr(torch, dtype)).requires_grad_(i % 2 == 1)}

    ds = ad.Dataset.range(4).map(make)
    found = PLACES[place](ds, str(tmp_path / "data"))
    assert len(found) in (4, 8)
    for element in found:
        assert (element["x"].requires_grad, element["x"].is_leaf) == (bool(element["x"][0].item() % 2), True)


def test_what_is_computed_leaves_gradients_behind(torch: Any, tmp_path: Path) -> None:
    weights = torch.ones(2, requires_grad=True)
    (batch,) = ad.Dataset.range(2).map(lambda i: weights * i).batch(2)
    (leaves,) = ad.Dataset.from_iterable([weights, weights]).batch(2)
    assert (batch.tolist(), leaves.tolist()) == ([[0, 0], [1, 1]], [[1, 1], [1, 1]])
    rows = [*ad.Dataset.from_tensor_slices(weights), *ad.Dataset.from_tensors(weights).unbatch()]
    computed = ad.Dataset.range(2).map(lambda i: weights * i)
    copies = [*computed.cache().repeat(2), *[*computed.cache(str(tmp_path / "data")).repeat(2)][2:]]
    sent = [*ad.Dataset.from_tensors(weights).prefetch_to_device("cpu")]
    assert not any(one.requires_grad for one in (batch, leaves, *rows, *copies, *sent))


@pytest.mark.parametrize("other", [1, np.arange(2)])
def test_tensors_and_others_in_a_batch_are_told_apart(torch: Any, other: Any) -> None:
    ds = ad.Dataset.from_iterable([torch.arange(2), other])
    for joined in (ds.batch(2), ds.padded_batch(2)):
        with pytest.raises(ad.StructureError, match=r"element 1 of the batch is a .*torch.as_tensor"):
            list(joined)


def test_a_batch_of_unlike_tensors_fails_in_its_place(torch: Any) -> None:
    it = iter(tensors(torch, [1, 2, 3, 3]).batch(2))
    with pytest.raises(ad.StructureError, match=r"has shape \(2,\)"):
        next(it)
    assert next(it).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("name", ["bfloat16", "float32", "int64"])
def test_unbatch_rebatch_window_and_shuffle_keep_tensors(torch: Any, name: str) -> None:
    ds = ad.Dataset.from_tensor_slices(torch.arange(6).to(getattr(torch, name)))
    batches = ds.batch(4)
    windows = [batch for window in ds.window(3) for batch in window.batch(3)]
    for found in (batches.unbatch().batch(6), batches.rebatch(6), ds.shuffle(3, seed=1).batch(6)):
        (whole,) = found
        assert whole.dtype is getattr(torch, name)
        assert sorted(whole.tolist()) == [*range(6)]
    assert [window.tolist() for window in windows] == [[0, 1, 2], [3, 4, 5]]


def test_padded_batches_and_buckets_fill_tensors_up(torch: Any) -> None:
    ds = tensors(torch, [1, 3]).map(lambda row: {"x": row.to(torch.bfloat16)})
    for made in (
        ds.padded_batch(2, padding_values=-1),
        ds.bucket_by_sequence_length(lambda e: torch.tensor(len(e["x"])), [9], [2, 2], padding_values=-1),
        ds.bucket_by_token_count(100, padding_values=-1),
    ):
        ((batch),) = made
        assert batch["x"].dtype is torch.bfloat16
        assert sorted(batch["x"].tolist()) == [[0, -1, -1], [0, 1, 2]]


def test_a_padding_value_may_be_a_tensor(torch: Any) -> None:
    (batch,) = tensors(torch, [1, 2]).padded_batch(2, padding_values=torch.tensor(-1))
    assert batch.tolist() == [[0, -1], [0, 1]]


def test_a_padding_that_a_tensor_cannot_hold_is_refused(torch: Any) -> None:
    with pytest.raises(ad.StructureError, match="padding_values: 0.5 does not fit torch.int64"):
        list(tensors(torch, [1, 2]).padded_batch(2, padding_values=0.5))
    with pytest.raises(ad.StructureError, match="is larger than the padded shape"):
        list(tensors(torch, [1, 3]).padded_batch(2, padded_shapes=[2]))


def test_packed_sequences_of_tensors_are_tensors(torch: Any) -> None:
    (row,) = tensors(torch, [2, 3]).pack_sequences(6)
    assert {type(value) for value in row.values()} == {torch.Tensor}
    assert sorted(row["inputs"].tolist()) == [0, 0, 0, 1, 1, 2]


def test_ragged_batch_says_what_to_do_with_tensors(torch: Any) -> None:
    with pytest.raises(ad.StructureError, match=r"\.numpy\(\) on it in a map"):
        list(tensors(torch, [1, 2]).ragged_batch(2))


def test_unique_and_distinct_compare_tensors_by_value(torch: Any) -> None:
    ds = ad.Dataset.range(6).map(lambda i: torch.tensor([i % 2, 1]))
    for one in (ds, ds.map(lambda t: (t, 1)), ds.map(lambda t: {"t": t.to(torch.bfloat16)})):
        assert len(list(one.unique())) == len(list(one.distinct())) == 2


def test_tensors_are_keys_by_value(torch: Any) -> None:
    ds = ad.Dataset.range(6)
    for key in (lambda x: torch.tensor(x % 2), lambda x: (torch.tensor(x % 2), 0)):
        groups = ds.group_by_window(key, lambda _, window: window.batch(3), window_size=3)
        assert [group.tolist() for group in groups] == [[0, 2, 4], [1, 3, 5]]
        counting = ad.Reducer(lambda _: 0, lambda count, _: count + 1, lambda count: count)
        assert list(ds.group_by_reducer(key, counting)) == [3, 3]
    with pytest.raises(TypeError, match="must return a key that has a hash"):
        list(ds.group_by_window(lambda x: torch.ones(2), lambda _, window: window, window_size=3))


def test_who_writes_into_a_tensor_changes_nobody_elses(torch: Any) -> None:
    own = torch.arange(4)
    for ds in (
        ad.Dataset.from_tensors({"x": own}),
        ad.Dataset.from_tensor_slices({"x": own}),
        ad.Dataset.from_list([{"x": own}]),
        ad.Dataset.from_iterable([{"x": own}]),
        ad.Dataset.range(3).map(lambda i: {"x": own * i}).cache(),
    ):
        first, second = ([element["x"].tolist() for element in ds.map(spoiled)] for _ in range(2))
        assert first == second
    assert own.tolist() == [0, 1, 2, 3]


def spoiled(element: Any) -> Any:
    element["x"] += 1
    return element


def test_lists_of_tensors_are_tensors_in_sources(torch: Any) -> None:
    (whole,) = ad.Dataset.from_tensors([torch.tensor([1, 2]), torch.tensor([3, 4])])
    assert torch.equal(whole, torch.tensor([[1, 2], [3, 4]]))
    assert [row.tolist() for row in ad.Dataset.from_tensor_slices([torch.tensor([1]), torch.tensor([2])])] == [[1], [2]]


@pytest.mark.parametrize("name", DTYPES)
def test_files_keep_tensors(torch: Any, name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    ds = ad.Dataset.range(3).map(lambda i: (torch.ones(2, 3).to(dtype).t(), torch.tensor(i).to(dtype)))
    ds.save(tmp_path / "saved")
    expected = list(ds)
    for found in (
        ad.Dataset.load(tmp_path / "saved"),
        *(made for made in [ds.cache(tmp_path / "kept")] for _ in range(2)),
        *(made for made in [ds.snapshot(tmp_path / "snapshot")] for _ in range(2)),
    ):
        for got, want in zip(found, expected, strict=True):
            assert all(one.dtype is dtype and torch.equal(one, other) for one, other in zip(got, want, strict=True))
            got[0].zero_()


def test_no_tensors_in_files_from_other_devices(torch: Any, tmp_path: Path) -> None:
    ds = ad.Dataset.range(1).map(lambda _: torch.ones(2, device="meta"))
    assert next(iter(ds.batch(1))).shape == (1, 2)
    with pytest.raises(ad.StructureError, match="device meta"):
        ds.save(tmp_path / "saved")


def test_specs_arrays_and_weights_of_tensors(torch: Any) -> None:
    ds = ad.Dataset.from_tensor_slices(torch.ones(2, 3))
    assert ds.element_spec == ad.TensorSpec((3,), "float32")
    assert ds.batch(2).element_spec == ad.TensorSpec((None, 3), "float32")
    halves = ad.Dataset.range(1).map(half)
    assert halves.element_spec == {"x": ad.TensorSpec((3,), object), "y": ad.TensorSpec((), "int64")}
    (element,) = halves.as_numpy_iterator()
    assert element["x"].dtype == np.float32
    assert type(element["y"]) is np.int64
    cached = ad.Dataset.range(4).map(lambda _: torch.zeros(1000)).cache(max_bytes=10_000)
    assert len(list(cached)) == len(list(cached)) == 4


def test_a_signature_converts_tensors(torch: Any) -> None:
    spec = ad.TensorSpec((None,), "float32")
    made = ad.Dataset.from_generator(lambda: [torch.arange(2), torch.ones(2), [1]], output_signature=spec)
    first, second, third = made
    assert torch.equal(first, torch.tensor([0.0, 1.0]))
    assert torch.equal(second, torch.ones(2))
    assert type(third) is np.ndarray
    wrong = ad.Dataset.from_generator(lambda: [torch.ones(2, 2)], output_signature=spec)
    with pytest.raises(ad.StructureError, match="expected TensorSpec"):
        list(wrong)


def test_tensors_cross_processes(torch: Any) -> None:
    there = ad.Dataset.range(3).map(half, 1, executor="process").map(lambda e: e["x"].t().unsqueeze(0))
    beside = ad.Dataset.range(3).map(half).with_options(ad.Options(placement="process")).map(lambda e: e["x"])
    for ds in (there, beside):
        found = list(ds)
        assert all(type(one) is torch.Tensor and one.dtype is torch.bfloat16 for one in found)
        assert [one.reshape(-1).tolist() for one in found] == [[i] * 3 for i in range(3)]


def test_tensors_by_number_in_pairs_and_for_several(torch: Any) -> None:
    ds = ad.Dataset.from_tensor_slices(torch.arange(3))
    assert ds[1].item() == 1
    assert type(ds[1]) is torch.Tensor
    assert [(one.item(), two) for one, two in ad.Dataset.zip(ds, ad.Dataset.range(3))] == [(0, 0), (1, 1), (2, 2)]


def test_fingerprints_tell_tensors_apart(torch: Any) -> None:
    def over(tensor: Any) -> str:
        return ad.Dataset.range(2).map(lambda i: tensor[i]).fingerprint()

    assert over(torch.arange(3)) == over(torch.arange(3)) != over(torch.arange(1, 4))
    assert over(torch.ones(2).bfloat16()) != over(torch.ones(2))


DTYPES_OF_ML = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def widened(name: str) -> Any:
    import ml_dtypes  # noqa: F401  which adds its dtypes to NumPy's
    import torch

    return torch.tensor([0.5, 1, 2]).to(getattr(torch, name))


@pytest.mark.parametrize("name", DTYPES_OF_ML)
def test_dtypes_that_ml_dtypes_adds_to_numpy_arrive_as_they_are(torch: Any, tmp_path: Path, name: str) -> None:
    pytest.importorskip("ml_dtypes")
    ds = ad.Dataset.from_iterable([name] * 2).map(widened, executor="process")
    for made in (ds, ad.Dataset.from_iterable([widened(name)] * 2)):
        cached = made.cache(str(tmp_path / f"{name}-{made is ds}"))
        for tensors in (made, cached, cached):
            assert [(one.dtype, one.float().tolist()) for one in tensors] == [(getattr(torch, name), [0.5, 1, 2])] * 2
    assert ds.element_spec.dtype == object


@pytest.mark.parametrize("name", DTYPES_OF_ML)
def test_arrays_of_ml_dtypes_become_tensors_of_theirs(torch: Any, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, name)
    rows = np.array([[0.5, 1], [2, 4]], dtype)
    for array in (rows, rows.T, rows[::-1], rows[:0], rows[0, 0], np.array(rows[0, 0])):
        ds = ad.Dataset.range(1).map(lambda _, array=array: array)
        for tensors in (ds.loader(), ds.prefetch_to_device("cpu")):
            (tensor,) = tensors
            assert tensor.dtype is getattr(torch, name)
            assert tensor.float().tolist() == np.asarray(array, np.float32).tolist()


def test_dtypes_that_torch_does_not_have_are_refused(torch: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ds = ad.Dataset.from_iterable([np.zeros(2, ml_dtypes.int4)])
    with pytest.raises(ad.StructureError, match="int4"):
        list(ds.loader())
    with pytest.raises(TypeError, match="int4"):
        list(ds.prefetch_to_device("cpu"))


def test_fields_of_packed_records_become_tensors(torch: Any) -> None:
    packed = np.array([(1, 2.5), (3, 4.5)], [("a", "i1"), ("b", "<f8")])
    ds = ad.Dataset.range(1).map(lambda _: {"a": packed["a"], "b": packed["b"], "big": np.array([1, 2], ">i4")})
    for tensors in (ds.loader(), ds.prefetch_to_device("cpu")):
        (element,) = tensors
        assert {name: one.tolist() for name, one in element.items()} == {"a": [1, 3], "b": [2.5, 4.5], "big": [1, 2]}


@pytest.mark.parametrize("way", ["cache", "save", "snapshot"])
def test_subclasses_of_tensors_are_refused_by_files(torch: Any, tmp_path: Path, way: str) -> None:
    from tests.elements.boxes import Boxes

    ds = ad.Dataset.range(2).map(lambda i: Boxes(torch.tensor([i]), "XYXY"))
    with pytest.raises(ad.StructureError, match=r"cannot be written to a file: tests\.elements\.boxes\.Boxes"):
        list(ds.save(str(tmp_path / "it")) or [] if way == "save" else getattr(ds, way)(str(tmp_path / "it")))


def test_what_torch_stacks_as_a_tensor_is_a_leaf(torch: Any) -> None:
    tensordict = pytest.importorskip("tensordict")
    element = tensordict.TensorDict({"a": torch.arange(2), "b": {"c": torch.ones(2, 3)}}, batch_size=[2])
    ds = ad.Dataset.from_iterable([element, element])
    (batch,) = ds.batch(2)
    assert type(batch) is tensordict.TensorDict
    assert (batch.batch_size, batch["b", "c"].shape) == ((2, 2), (2, 2, 3))
    rows = list(ds.unbatch())
    assert [(type(row), row["a"].item()) for row in rows] == [(tensordict.TensorDict, i) for i in (0, 1, 0, 1)]
    assert next(iter(ds))["a"].data_ptr() != element["a"].data_ptr()  # nobody can change another's
    with pytest.raises(ad.StructureError, match="TensorDict is not copied to a device"):
        list(ds.prefetch_to_device("cpu"))


class Stacked:
    """What torch stacks, as a TensorDict."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = tensor.shape

    def detach(self) -> Stacked:
        return Stacked(self.tensor.detach())

    def clone(self) -> Stacked:
        return Stacked(self.tensor.clone())

    def __iter__(self) -> Any:
        return map(Stacked, self.tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func([one.tensor for one in args[0]], *args[1:], **(kwargs or {})))


def test_classes_with_functions_of_torch_are_stacked_by_torch(torch: Any) -> None:
    ds = ad.Dataset.from_iterable([Stacked(torch.tensor([i, i])) for i in range(3)])
    (batch,) = ds.batch(3)
    assert type(batch) is Stacked
    assert batch.tensor.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert [row.tensor.tolist() for row in ds.batch(3).unbatch()] == batch.tensor.tolist()


def test_a_default_device_of_the_program_changes_nothing(torch: Any) -> None:
    rows = [torch.ones(size, device="cpu") for size in (1, 2)]
    ds = ad.Dataset.range(4).map(lambda i: np.full(2, i, np.float32)).batch(2)
    options = ad.Options(placement="current")  # where the engine sees it
    with torch.device("meta"):
        for tensors in (ds.to_torch(), ds.loader(), ds.prefetch_to_device("cpu")):
            assert [(one.device.type, one.tolist()) for one in tensors] == [
                ("cpu", [[0, 0], [1, 1]]),
                ("cpu", [[2, 2], [3, 3]]),
            ]
        (padded,) = ad.Dataset.from_iterable(rows).padded_batch(2, padding_values=5.0).with_options(options)
        assert padded.tolist() == [[1, 5], [1, 1]]
