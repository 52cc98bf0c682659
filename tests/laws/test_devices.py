"""The law of prefetch_to_device: the same elements, in the same places, with their arrays on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from asyncdata.devices.simulated import Accelerator, SimulatedArray
from asyncdata.elements.structure import map_leaves
from asyncdata.testing import leaves_nothing
from tests import reference
from tests.laws.pipelines import Pipeline, pipelines
from tests.running import read_async, read_plain

if TYPE_CHECKING:
    from collections.abc import Callable


def on_host(leaf: Any, _: str) -> Any:
    return leaf.numpy()[()] if isinstance(leaf, SimulatedArray) else leaf


@given(pipe=pipelines(), way=st.sampled_from([read_plain, read_async]), size=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_device_changes_nothing(pipe: Pipeline, way: Callable[..., list[Any]], size: int, seed: int) -> None:
    there = pipe.then(
        f"prefetch_to_device({size})",
        lambda ds: ds.prefetch_to_device(Accelerator(seed), size),
        lambda epoch: reference.prefetch_to_device(pipe.meaning(epoch)),
    )
    with leaves_nothing():
        outcomes = [map_leaves(on_host, outcome) for outcome in way(there.build())]
    assert there.comparable(outcomes) == there.elements()
