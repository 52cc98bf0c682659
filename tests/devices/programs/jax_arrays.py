"""Arrays of JAX by prefetch_to_device, on JAX's CPU."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.identity.content_hash import contents_of

pytestmark = pytest.mark.integrations

BATCHES = ad.Dataset.range(20).map(lambda x: {"x": np.full(3, x, np.float32), "name": f"{x}"}).batch(4)


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax")


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_batches_are_arrays_of_jax_and_a_state_goes_on(jax: Any, placement: Any) -> None:
    ds = BATCHES.prefetch_to_device(jax.devices()[0]).with_options(ad.Options(placement=placement))
    want = [batch["x"].tolist() for batch in BATCHES]
    states: list[Any] = []
    with ds.iterate() as batches:
        for batch, rows in zip(batches, want, strict=True):
            assert isinstance(batch["x"], jax.Array)
            assert batch["x"].tolist() == rows
            states.append(batches.state_dict())
    assert [batch["x"].tolist() for batch in ds.iterate(state=states[1])] == want[2:]

    async def main() -> list[Any]:
        return [batch["x"].tolist() async for batch in ds]

    assert asyncio.run(main()) == want


def test_a_sharding(jax: Any) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    for batch in BATCHES.prefetch_to_device(sharding):
        assert batch["x"].sharding == sharding


def test_numbers_that_numpy_does_not_have(jax: Any) -> None:
    import jax.numpy as jnp

    value = np.ones(2, dtype=jnp.bfloat16)
    (array,) = ad.Dataset.from_iterable([value]).prefetch_to_device(jax.devices()[0])
    assert (array.dtype, array.tolist()) == (jnp.bfloat16, [1, 1])


def test_arrays_of_jax_itself_are_sent_too(jax: Any) -> None:
    import jax.numpy as jnp

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    (found,) = ad.Dataset.range(1).map(lambda _: {"x": jnp.arange(8)}).prefetch_to_device(sharding)
    assert (found["x"].sharding, found["x"].tolist()) == (sharding, [*range(8)])


def test_arrays_that_others_have_too_stay_as_they_are(jax: Any) -> None:
    rows = np.arange(64, dtype=np.float32).reshape(4, 16)
    found = list(ad.Dataset.from_tensor_slices(rows).prefetch_to_device(jax.devices()[0]))
    rows[:] = -1
    assert float(sum(array.sum() for array in found)) == float(np.arange(64).sum())


def test_a_ring_is_refused(jax: Any) -> None:
    with pytest.raises(ad.PlanError, match="not for JAX"):
        BATCHES.prefetch_to_device(jax.devices()[0], mode="ring")


def test_numbers_have_64_bits_where_the_consumer_has_set_it(jax: Any) -> None:
    number = 2**40 + 5
    ds = ad.Dataset.from_iterable([np.array([number])]).prefetch_to_device(jax.devices()[0])
    context = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with context(True):
        (array,) = ds
        assert (array.dtype, array.tolist()) == (np.int64, [number])
    (array,) = ds
    assert array.dtype == np.int32


def test_arrays_on_the_cpu_have_memory_of_their_own(jax: Any) -> None:
    held = []

    def ramp(i: int) -> Any:
        room = np.empty(4 * 1024 + 64, np.uint8)
        begin = -room.ctypes.data % 64  # aligned, so that JAX would take the memory over
        held.append(room[begin : begin + 4096].view(np.float32))
        held[-1][:] = i
        return held[-1]

    arrays = list(ad.Dataset.range(3).map(ramp).prefetch_to_device(jax.devices()[0]))
    jax.block_until_ready(arrays)
    for array in held:
        array[:] = 7
    assert [float(array[-1]) for array in arrays] == [0, 1, 2]


@pytest.mark.parametrize("dtype", [">i4", ">f4", ">c8"])
def test_big_endian_arrays_and_fields_of_packed_records_are_sent(jax: Any, dtype: str) -> None:
    packed = np.array([(1, 2), (3, 4)], [("a", "i1"), ("b", dtype)])
    for make in (lambda _: packed["b"], lambda _: np.array([2, 4], dtype)):
        (array,) = ad.Dataset.range(1).map(make).prefetch_to_device(jax.devices()[0])
        assert array.tolist() == [2, 4]


@pytest.mark.parametrize("compiler", ["jit", "vmap", "grad"])
def test_what_jax_compiles_counts_for_caches(jax: Any, compiler: str) -> None:
    compiled = [getattr(jax, compiler)(function) for function in (np.square, lambda x: x + 1, lambda x: x + 2)]
    assert len({contents_of((one,)) for one in compiled}) == 3
