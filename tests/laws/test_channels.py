"""The law of a channel, which is read once and keeps nothing: whatever comes after it gives its meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.testing import leaves_nothing
from tests.laws.pipelines import INNER_STEPS, SIZES, Pipeline, chains
from tests.running import WAYS


def closed(items: list[Any]) -> ad.Channel:
    """Return a channel to which all was sent that there will be."""
    channel = ad.Channel(max(1, len(items)))
    for start in range(0, len(items), 3):
        channel.send_nowait(items[start : start + 3])
    channel.close()
    return channel


@st.composite
def received(draw: st.DrawFn) -> Pipeline:
    items = list(range(draw(SIZES)))
    return Pipeline(f"from_channel({len(items)})", lambda: ad.Dataset.from_channel(closed(items)), lambda epoch: items)


@given(pipe=chains(received(), INNER_STEPS, 4), way=st.sampled_from(WAYS), most=st.sampled_from([5000, 5000, 3]))
def test_a_channel_gives_what_was_sent(pipe: Pipeline, way: Callable[..., list[Any]], most: int) -> None:
    with leaves_nothing():
        found = way(pipe.build(), most)
    if pipe.ordered:
        assert pipe.comparable(found) == pipe.elements()[:most]
    elif most > len(found):
        assert pipe.comparable(found) == pipe.elements()
