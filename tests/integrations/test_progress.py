"""The bar of `Dataset.progress`: what it counts and says, and that nobody sees it who does not watch."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from typing import Any

import pytest

import asyncdata as ad

tqdm: Any = pytest.importorskip("tqdm.auto")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elements_epoch_and_waiting_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a fast machine's numbers are long
    ds = ad.Dataset.range(100).batch(10)
    with redirect_stderr(Terminal()) as terminal:
        assert [len(batch) for batch in ds.progress()] == [10] * 10
    last = terminal.getvalue().split("\r")[-1]
    assert "epoch 0: 100%" in last
    assert "10/10" in last
    assert re.search(r" samples/s, waiting \d+%", last)


def test_failed_elements_are_raised_and_counted() -> None:
    def fails(x: int) -> int:
        if x == 3:
            raise ValueError(x)
        return x

    with redirect_stderr(Terminal()) as terminal:
        numbers = ad.Dataset.range(6).map(fails).progress("train")
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="3"):
            next(numbers)
        assert [*numbers] == [4, 5]
    assert "train: 100%" in terminal.getvalue()


def test_it_is_quiet_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*ad.Dataset.range(5).progress()] == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err == ""


async def test_async_loops_have_it_too() -> None:
    with redirect_stderr(Terminal()) as terminal:
        async with ad.Dataset.range(5).progress() as numbers:
            assert [x async for x in numbers] == [0, 1, 2, 3, 4]
    assert "5/5" in terminal.getvalue()


def test_a_loop_that_is_left_ends_the_pipeline() -> None:
    with ad.Dataset.counter().progress() as numbers:
        for _ in numbers:
            break
        assert numbers.elements.stats().elements == numbers.monitor()().elements == 1
    with pytest.raises(ad.ClosedError):
        next(numbers)
