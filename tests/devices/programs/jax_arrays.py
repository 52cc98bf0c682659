"""Arrays of JAX by prefetch_to_device, on JAX's CPU."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

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
