"""What `from_channel(sample=, window=, replay=)` draws: each item so many times, whatever is resumed and from where."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes
from tests.web.test_durable_channel import fill

pytestmark = pytest.mark.usefixtures("nothing_left")

WAYS: dict[str, dict[str, Any]] = {
    "fifo": {"window": 4, "replay": 3},
    "uniform": {"sample": "uniform", "window": 7, "seed": 1},
    "uniform, twice": {"sample": "uniform", "window": 5, "replay": 2, "seed": 1},
    "priority": {"sample": "priority", "window": 5, "replay": 3, "seed": 1, "priority": lambda item: item % 4},
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS.keys())
def test_each_item_comes_so_many_times_and_resumes_anywhere(how: dict[str, Any], tmp_path: Path) -> None:
    fill(tmp_path, 16, 3, segment_bytes=200)
    found = list(ad.Dataset.from_channel(tmp_path, decode=int, **how))
    assert Counter(found) == dict.fromkeys(range(16), how.get("replay", 1))
    first = {number: found.index(number) for number in range(16)}
    assert all(found.index(number) >= (number - how["window"] + 1) for number in first)
    check_resumes(lambda: ad.Dataset.from_channel(tmp_path, decode=int, **how).batch(3))


def test_in_turn_through_the_window() -> None:
    channel = ad.Channel()
    channel.send_nowait([*"abcde"])
    channel.close()
    assert "".join(ad.Dataset.from_channel(channel, window=2, replay=2)) == "ababcdcdee"


def test_states_of_processes_that_read_in_turn_need_no_seed_to_be_merged(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    states: list[dict[str, Any]] = []
    for index in range(2):
        with ad.Dataset.from_channel(tmp_path, decode=int, replay=2).shard(2, index).iterate() as items:
            states.append(items.state_dict())
    merged = merge_states(states)
    with ad.Dataset.from_channel(tmp_path, decode=int, replay=2).shard(1, 0).iterate() as items:
        items.load_state_dict(merged)
        assert list(items) == [0, 0, 1, 1, 2, 2]


def test_items_of_a_high_priority_come_sooner_and_never_those_of_none() -> None:
    channel = ad.Channel()
    channel.send_nowait([0] * 20 + [1, 9] * 100)
    channel.close()
    ds = ad.Dataset.from_channel(channel, sample="priority", window=220, seed=3, priority=lambda item: item)
    found = list(ds)
    assert found[-20:] == [0] * 20
    assert Counter(found[:60])[9] > 45


def test_errors_come_once_and_a_priority_that_is_none_is_one() -> None:
    channel = ad.Channel()
    channel.send_nowait([1, -1, "x", 2])
    channel.close()
    ds = ad.Dataset.from_channel(channel, sample="priority", window=3, replay=2, priority=float)
    errors: list[Exception] = []
    with ds.ignore_errors().iterate() as items:
        assert Counter(items) == {1: 2, 2: 2}
    channel = ad.Channel()
    channel.send_nowait([-1, "x"])
    channel.close()
    ds = ad.Dataset.from_channel(channel, sample="priority", window=3, replay=2, priority=float)
    with ds.iterate() as items:
        for _ in range(2):
            with pytest.raises(ValueError, match="at least 0|could not convert") as caught:
                next(items)
            errors.append(caught.value)
        assert list(items) == []
    assert len(errors) == 2


def test_what_a_reader_does_to_an_item_is_not_seen_by_the_next() -> None:
    channel = ad.Channel()
    channel.send_nowait([{"x": np.zeros(2), "seen": []}])
    channel.close()
    for item in ad.Dataset.from_channel(channel, window=1, replay=2):
        assert item["seen"] == []
        item["seen"].append(1)
        with pytest.raises(ValueError, match="read-only"):
            item["x"] += 1


def test_a_state_at_the_end_goes_on_with_what_came_since_and_trims(tmp_path: Path) -> None:
    def read(state: Any) -> tuple[list[int], Any]:
        ds = ad.Dataset.from_channel(tmp_path, decode=int, follow=False, sample="uniform", window=4, replay=2, seed=5)
        with ds.iterate(state=state) as items:
            return list(items), json.loads(json.dumps(items.state_dict()))

    fill(tmp_path, 10, 2, end=False, segment_bytes=100)
    first, state = read(None)
    fill(tmp_path, 10, 2, end=False, segment_bytes=100)
    more, state = read(state)
    assert Counter(first) == Counter(more) == dict.fromkeys(range(10), 2)
    assert ad.web.trim(tmp_path, state) > 0
    assert read(state)[0] == []


def test_a_window_keeps_its_items_from_being_trimmed(tmp_path: Path) -> None:
    fill(tmp_path, 40, 1, segment_bytes=100)
    ds = ad.Dataset.from_channel(tmp_path, decode=int, sample="uniform", window=8, replay=2, seed=2)
    with ds.iterate() as items:
        found = [next(items) for _ in range(30)]
        state = json.loads(json.dumps(items.state_dict()))
    ad.web.trim(tmp_path, state)
    with ds.iterate(state=state) as items:
        assert Counter([*found, *items]) == dict.fromkeys(range(40), 2)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sample": "best"}, "sample="),
    ({"sample": "uniform"}, "needs window="),
    ({"sample": "priority", "window": 2}, "needs priority="),
    ({"priority": abs, "window": 2}, "needs priority="),
    ({"window": 0}, "window"),
    ({"replay": 0}, "replay"),
    ({"sample": "uniform", "window": 2, "seed": "a"}, "seed"),
]


def test_wrong_arguments() -> None:
    for how, what in WRONG:
        with pytest.raises(ad.PlanError, match=what):
            ad.Dataset.from_channel(ad.Channel(), **how)
