"""States and files that an earlier version wrote: this version goes on from them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import asyncdata as ad
from tests.data.earlier import HERE, PIPELINES, STATES, comparable

EARLIER: dict[str, Any] = json.loads(STATES.read_text(encoding="utf-8"))


def test_each_pipeline_has_a_state() -> None:
    assert [*EARLIER] == [*PIPELINES]


@pytest.mark.parametrize("name", [*EARLIER])
def test_goes_on_from_the_state_of_an_earlier_version(name: str) -> None:
    elements = PIPELINES[name]().iterate(state=EARLIER[name]["state"])
    assert [comparable(element) for element in elements] == EARLIER[name]["rest"]


def test_reads_what_an_earlier_version_saved() -> None:
    elements = [comparable(element) for element in ad.Dataset.load(str(HERE / "saved"))]
    assert elements == [{"a": number, "b": [0, 1, 2]} for number in range(12)]
