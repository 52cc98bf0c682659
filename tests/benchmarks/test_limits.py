"""The limits of the guide's experiments, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks import limits

__all__ = ()


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (limits.naive(), 2 * (0.030 + 3 * 0.015 + 3 * 0.010)),
        (limits.prefetched(), 2 * (0.030 + 3 * 0.015 + 0.010)),
        (limits.interleaved_sequentially(), 2 * (2 * 0.030 + 6 * 0.015 + 0.010)),
        (limits.interleaved_in_parallel(), 2 * (0.045 + 6 * 0.010)),
        (limits.mapped_sequentially(), 2 * (0.030 + 3 * 0.045 + 0.010)),
        (limits.mapped_in_parallel(), 2 * (0.030 + 3 * 0.015 + 0.030 + 0.010)),
        (limits.cached(5), 0.030 + 3 * 0.045 + 0.010 + 4 * 0.030),
        (limits.closing_without_prefetch(50, 5), 5 * (2 * (0.030 + 50 * 0.015 + 0.0011) + 1.000 + 0.001)),
        (limits.closing_naive(50, 5), 5 * (2 * (0.030 + 50 * 0.015 + 0.0011) + 0.500 + 0.001)),
        (limits.closing_optimised(50, 5), 0.030 + 25 * 0.015 + 0.055 + 1.0 + 4 * (0.005 + 1.0) + 5 * 0.001),
    ],
    ids=lambda value: f"{value:.3f}",
)
def test_limit(limit: float, seconds: float) -> None:
    assert limit == pytest.approx(seconds)
