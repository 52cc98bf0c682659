"""Steps that are left out by their numbers: also after a resume, and in the middle of a block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.integrations.loader import Loader
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs

RANGES = [range(3), range(2, 5), range(4, 6), range(9, 40)]


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
@pytest.mark.parametrize("size", [1, 3])
def test_steps_in_ranges_do_not_come(placement: Any, size: int) -> None:
    ds = ad.Dataset.range(36).batch(size).with_options(ad.Options(placement=placement))
    gone = {step for steps in RANGES for step in steps}
    with ds.iterate() as batches:
        for steps in RANGES:
            batches.skip_steps(steps)
        assert batches.peek()[0] == 6 * size
        found = [batch.tolist() for batch in batches]
        assert batches.state_dict()["delivered"] == 36 // size
        stats = batches.stats()
    assert (stats.elements, stats.elements + stats.skipped) == (len(found), 36 // size)
    assert f"{stats.skipped} more left out by skip_steps" in str(stats)
    assert found == [[*range(step * size, (step + 1) * size)] for step in range(36 // size) if step not in gone]


@pytest.mark.parametrize("stop", range(8))
def test_a_run_that_resumes_leaves_out_the_rest_of_them(stop: int) -> None:
    ds = ad.Dataset.range(20)
    whole = [x for x in range(20) if x not in (3, 4, 5, 6)]
    with ds.iterate() as numbers:
        before = [next(numbers) for _ in range(min(stop, 2))]
        numbers.skip_steps(range(3, 7))
        before += [next(numbers) for _ in range(stop - len(before))]
        state = numbers.state_dict()
        assert numbers.origin()["step"] == before[-1] if before else True
    with ds.iterate(state=state) as numbers:
        numbers.skip_steps(range(3, 7))
        assert before + list(numbers) == whole


def test_a_failure_in_them_is_left_out_and_that_of_a_source_is_not(tmp_path: Path) -> None:
    with ad.Dataset.range(6).map(lambda x: 1 // (x - 2)).iterate() as numbers:
        numbers.skip_steps(range(1, 4))
        assert list(numbers) == [-1, 0, 0]
    with ad.TextLineDataset([str(tmp_path / "none.txt")]).iterate() as lines:
        lines.skip_steps(range(5))
        with pytest.raises(FileNotFoundError):
            next(lines)


def test_a_loader_leaves_out_steps_of_its_epoch_and_the_log_does_not_have_them(tmp_path: Path) -> None:
    log = str(tmp_path / "run.jsonl")
    loader = Loader(ad.Dataset.range(12).batch(2).with_options(ad.Options(record=log)))
    loader.skip_steps(range(2, 4))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [8, 9], [10, 11]]
    assert len([*loader]) == 6
    first, second = audit(read_logs([log]))
    assert first.because == [f"the one process has no step 2 to 3 in its log, {log}"]
    assert second.complete


def test_steps_are_a_range() -> None:
    with ad.Dataset.range(4).iterate() as numbers, pytest.raises(ad.PlanError, match="as range"):
        numbers.skip_steps(3)  # type: ignore[arg-type]
