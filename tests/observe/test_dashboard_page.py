"""What the dashboard says of a pipeline, without a server."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.observe.dashboard_page import Sample, View, rendered
from asyncdata.observe.statistics import Statistics


def fails(x: int) -> int:
    if x == 3:
        raise ValueError("<b>three</b>")
    return x


def shown(stats: Statistics, *samples: Sample) -> str:
    return rendered([View(7, stats, deque(samples))], 10.0)


def test_state_bottleneck_and_errors_are_told() -> None:
    with ad.Dataset.range(6).map(fails).iterate() as numbers:
        assert 'class="not-begun"' in shown(numbers.stats())
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(numbers)
        stats = numbers.stats()
        assert stats.state == "running"
        assert stats.errors[0].startswith("ValueError: <b>three</b>; in map(fails) at test_dashboard_page.py")
        assert stats.errors[0].endswith("element 3")
        page = shown(stats, Sample(6.0, 1, (None, None, 2)), Sample(9.0, 3, (None, None, 1)))
        assert "&lt;b&gt;three&lt;/b&gt;" in page
        assert "<b>three" not in page
        assert "elements a second, at most 1" in page
        assert list(numbers) == [4, 5]
        assert numbers.stats().state == "ended"
    assert numbers.stats().state == "ended"


def test_one_that_is_left_is_closed() -> None:
    with ad.Dataset.range(6).iterate() as numbers:
        next(numbers)
    assert numbers.stats().state == "closed"
    assert 'class="closed"' in shown(numbers.stats())


def test_one_that_breaks_has_failed() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise KeyError

    def stops(x: int) -> int:
        raise SystemExit(3) if x else Broken

    numbers = ad.Dataset.range(3).map(stops).iterate()
    with pytest.raises(Broken):
        next(numbers)
    with pytest.raises(SystemExit):
        next(numbers)
    stats = numbers.stats()
    assert stats.errors[0] == "Broken"
    assert stats.errors[1].startswith("SystemExit: 3")
    assert stats.state == "failed"
    numbers.close()


@pytest.mark.parametrize("wrong", [8484, "8484", "", 1.5, ":8484", "here:port", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"Options\(dashboard=\) must be True"):
        ad.Options(dashboard=wrong)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ad.MissingDependencyError, match=r"pip install 'asyncdata\[dashboard\]'"):
        ad.observe.dashboard()


@pytest.mark.parametrize("wrong", [5, None, ad.Dataset.range(3), [1]])
def test_what_is_no_iterator_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"dashboard\(\) needs an iterator, such as iter\(dataset\)"):
        ad.observe.dashboard(wrong)


@pytest.mark.parametrize("wrong", [-1, 70_000, "8484", True])
def test_what_is_no_port_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"dashboard\(port=\) must be a number from 0 to 65535"):
        ad.observe.dashboard(port=wrong)
