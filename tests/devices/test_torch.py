"""Tensors of PyTorch by prefetch_to_device, on the CPU: what a program sees is the same as on a GPU."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.packed_layout import PackedLayout
from asyncdata.devices.simulated import Accelerator
from asyncdata.elements.tensors import tensor_of, tensor_parts

pytestmark = pytest.mark.torch

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64")
BATCHES = ad.Dataset.range(20).map(lambda x: {"x": np.full(3, x, np.float32), "name": f"{x}"}).batch(4)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
@pytest.mark.parametrize("mode", ["fresh", "ring"])
def test_batches_are_tensors_and_a_state_goes_on(torch: Any, placement: Any, mode: Any) -> None:
    ds = BATCHES.prefetch_to_device("cpu", mode=mode).with_options(ad.Options(placement=placement))
    want = [batch["x"].tolist() for batch in BATCHES]
    states: list[Any] = []
    with ds.iterate() as batches:
        for batch, rows in zip(batches, want, strict=True):
            assert type(batch["x"]) is torch.Tensor
            assert (batch["x"].device.type, batch["x"].tolist()) == ("cpu", rows)
            assert batch["name"].dtype == object
            states.append(batches.state_dict())
    assert [batch["x"].tolist() for batch in ds.iterate(state=states[1])] == want[2:]

    async def main() -> list[Any]:
        return [batch["x"].tolist() async for batch in ds]

    assert asyncio.run(main()) == want


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(torch: Any, name: str) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(name)
    (tensor,) = ad.Dataset.from_tensors(array).prefetch_to_device(torch.device("cpu", 0))
    assert tensor.dtype is getattr(torch, name)
    assert np.array_equal(tensor.numpy(), array)


def test_a_dtype_that_torch_does_not_have_fails_in_its_place(torch: Any) -> None:
    values = [np.zeros(2), np.zeros(2, np.longdouble), np.ones(2)]
    with ad.Dataset.from_iterable(values).prefetch_to_device("cpu").iterate() as elements:
        assert next(elements).tolist() == [0, 0]
        with pytest.raises(TypeError) as raised:
            next(elements)
        assert raised.value.__notes__ == ["in prefetch_to_device('cpu', buffer_size=2), element 1"]
        assert next(elements).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_stay_tensors(torch: Any, dtype: str) -> None:
    ds = ad.Dataset.range(4).map(lambda x: torch.full((2,), x, dtype=getattr(torch, dtype))).batch(2)
    assert [batch.tolist() for batch in ds.prefetch_to_device("cpu")] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
    assert {batch.dtype for batch in ds.prefetch_to_device("cpu")} == {getattr(torch, dtype)}
    if dtype == "float32":
        accelerator = Accelerator()
        found = [batch.numpy().tolist() for batch in ds.prefetch_to_device(accelerator)]
        assert (found, accelerator.races) == ([[[0, 0], [1, 1]], [[2, 2], [3, 3]]], [])


def test_arrays_that_others_have_too_are_copied(torch: Any) -> None:
    rows = np.arange(6).reshape(3, 2)
    ds = ad.Dataset.from_tensor_slices(rows).prefetch_to_device("cpu")
    for row in ds:
        row.zero_()
    assert [row.tolist() for row in ds] == [[0, 1], [2, 3], [4, 5]]


def test_a_ring_is_written_again_and_static_tensors_are_the_callers(torch: Any) -> None:
    ring = [batch["x"].data_ptr() for batch in BATCHES.prefetch_to_device("cpu", buffer_size=1, mode="ring")]
    assert len(set(ring)) == 2
    own = {"x": torch.zeros(4, 3)}
    found: list[float] = []
    for batch in BATCHES.prefetch_to_device("cpu", static=own):
        assert batch["x"] is own["x"]
        found.append(float(batch["x"].sum()))
    assert found == [float(batch["x"].sum()) for batch in BATCHES]


def test_without_a_gpu_it_says_so_and_how_to_go_on(torch: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for device in ("cuda", "cuda:3", torch.device("cuda")):
        with pytest.raises(ad.DeviceNotFoundError, match=r'finds no GPU .* prefetch_to_device\("cuda" if torch'):
            next(iter(BATCHES.prefetch_to_device(device)))


def test_small_arrays_are_parts_of_what_is_sent(torch: Any) -> None:
    arrays = [np.arange(6).reshape(2, 3).astype(name) for name in DTYPES] + [np.float32(7), np.zeros((2, 0))]
    transposed = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    conjugated = torch.tensor([1 + 2j, 3j]).conj()
    bfloat16 = torch.tensor([[1.5], [-2]], dtype=torch.bfloat16)
    hosts = [*map(np.asarray, arrays), bfloat16, torch.ones(()), transposed, conjugated, torch.zeros((0, 3))]
    layout = PackedLayout(hosts)
    packed = torch.zeros(layout.size, dtype=torch.uint8)
    for _ in range(2):
        layout.pack(hosts, packed.numpy())
        parts = tensor_parts(packed, layout.parts)
        for part, host in zip(parts, map(tensor_of, hosts), strict=True):
            assert (part.dtype, part.shape, part.tolist()) == (host.dtype, host.shape, host.tolist())
            assert part.data_ptr() % 64 == packed.data_ptr() % 64
