"""Runs alternate, bars judge in the right direction, and a row says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.harness import AtLeast, AtMost, Below, Row, Samples, alternate

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ()


def test_contenders_run_by_turns_after_a_warm_up() -> None:
    ran: list[str] = []

    def contender(name: str) -> Callable[[], Callable[[], None]]:
        return lambda: lambda: ran.append(name)

    samples = alternate({"a": contender("a"), "b": contender("b")}, rounds=3)
    assert "".join(ran) == "ab" + "ababab"
    assert {name: len(runs.seconds) for name, runs in samples.items()} == {"a": 3, "b": 3}


def test_a_run_is_timed_without_its_preparation() -> None:
    order: list[str] = []

    def prepare() -> Callable[[], None]:
        order.append("prepare")
        return lambda: order.append("run")

    alternate({"it": prepare}, rounds=1)  # which is not warmed up for
    assert order == ["prepare", "run"]


def test_samples_know_their_median_and_best() -> None:
    samples = Samples((3.0, 1.0, 2.0, 9.0, 2.5))
    assert (samples.median, samples.best) == (2.5, 1.0)


@pytest.mark.parametrize(
    ("bar", "measured", "reference", "ratio", "passed"),
    [
        (AtMost(1.03), 1.02, 1.0, "1.020x", "pass"),
        (AtMost(1.03), 1.04, 1.0, "1.040x", "MISS"),
        (AtLeast(3), 1.0, 3.5, "3.5x", "pass"),
        (AtLeast(3), 1.0, 1.5, "1.500x", "MISS"),
        (Below(20), 55.0, 40.0, "+15.0", "pass"),
        (Below(20), 61.0, 40.0, "+21.0", "MISS"),
    ],
)
def test_bars_judge(bar: AtMost | AtLeast | Below, measured: float, reference: float, ratio: str, passed: str) -> None:
    row = Row("it", measured, against="peer", reference=reference, bar=bar)
    assert row.cells() == ("it", f"{measured:.4g} s", f"peer {reference:.4g} s", ratio, str(bar), passed)
    assert row.record()["passed"] is (passed == "pass")


def test_a_row_without_a_bar_has_no_verdict() -> None:
    row = Row("it", 12_345.6, unit="us")
    assert row.cells() == ("it", "12,346 us", "", "", "", "")
    assert row.record()["passed"] is None
