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


def on_a_device(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, seed = draw(st.integers(1, 3)), draw(st.integers(0, 99))
    return pipe.then(
        f"prefetch_to_device({size})",
        lambda ds: ds.prefetch_to_device(Accelerator(seed), size),
        lambda epoch: reference.prefetch_to_device(pipe.meaning(epoch)),
    )


@st.composite
def sent(draw: st.DrawFn) -> Pipeline:
    return on_a_device(draw, draw(pipelines()))


@given(pipe=sent(), way=st.sampled_from([read_plain, read_async]))
def test_a_device_changes_nothing(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    with leaves_nothing():
        outcomes = [map_leaves(on_host, outcome) for outcome in way(pipe.build())]
    assert pipe.comparable(outcomes) == pipe.elements()
