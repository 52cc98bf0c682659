"""Going back: the state before any step of a log, from which the rest of the run comes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.integrations.loader import Loader


def pipeline(log: Path | None = None, count: int = 1, index: int = 0) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(60).shuffle(12, seed=1).shard(count, index).batch(3)
    return ds.with_options(ad.Options(record=log))


def lists(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def read(ds: ad.Dataset[Any], count: int, state: Any = None) -> dict[str, Any]:
    """Read some elements and leave; return the state."""
    with ds.iterate(state=state) as elements:
        for _ in range(count):
            next(elements)
        return elements.state_dict()


def test_the_last_run_that_came_to_a_step_counts_and_its_epoch_must_be_clear(tmp_path: Path) -> None:
    ds, log = pipeline(tmp_path / "run.jsonl"), tmp_path / "run.jsonl"
    whole, later = lists(pipeline()), lists(pipeline().iterate(epoch=1))
    read(ds, 8, state=read(ds, 5))
    for step in (0, 3, 5, 12, 13):
        assert lists(ds.iterate(state=pipeline().state_before(step, record=log))) == whole[step:]
    lists(ds.iterate(epoch=1))
    assert lists(ds.iterate(state=ds.state_before(7, epoch=1))) == later[7:]
    with pytest.raises(ad.PlanError, match="step 7 is in the epochs 0, 1: say which"):
        ds.state_before(7)


def test_without_a_record_from_the_state_before_it_although_the_log_was_written_with_it(tmp_path: Path) -> None:
    ds = pipeline(tmp_path / "run.jsonl")
    with ds.iterate(epoch=0) as batches:
        origins = [batches.origin() for _ in batches]
    better = ds.exclude(origins[2:3])
    state = better.state_before(4)
    assert lists(better.iterate(state=state)) == lists(pipeline().iterate(epoch=0))[4:]
    gone = [x for batch in lists(pipeline().iterate(epoch=0))[:2] for x in batch] + lists(ds.replay(origins[2:3]))[0]
    rest = [x for batch in lists(better.iterate(state=better.state_before(2, epoch=0))) for x in batch]
    assert sorted(rest + gone) == [*range(60)]
    with pytest.raises(ad.ResumeError, match="left out other records than this pipeline"):
        ds.exclude(origins[:1]).state_before(7)


@pytest.mark.parametrize("step", [2, 4])
def test_each_share_goes_back_and_another_number_of_them_goes_on(tmp_path: Path, step: int) -> None:
    log = tmp_path / "run.jsonl"
    shares = [pipeline(log, 3, index) for index in range(3)]
    for ds in shares:
        lists(ds)
    before = [lists(pipeline(None, 3, index))[:step] for index in range(3)]
    merged = merge_states([ds.state_before(step, epoch=0) for ds in shares])
    pair = [pipeline(log, 2, index) for index in range(2)]
    after = [lists(ds.iterate(state=merged)) for ds in pair]
    assert sorted(x for part in [*before, *after] for batch in part for x in batch) == [*range(60)]
    begin = (3 * step + 1) // 2
    for more in (0, 1):
        assert lists(pair[0].iterate(state=pair[0].state_before(begin + more, epoch=0))) == after[0][more:]


def test_without_an_order_only_states_are_known(tmp_path: Path) -> None:
    ds = ad.Dataset.range(40).map(abs, num_parallel_calls=2, deterministic=False).batch(4)
    ds = ds.with_options(ad.Options(record=tmp_path / "run.jsonl"))
    with ds.iterate() as batches:
        states = [batches.state_dict() for _ in batches]
    assert ds.state_before(3) == states[2]
    with ds.iterate(epoch=0) as batches:
        next(batches), next(batches), next(batches), next(batches)
        batches.state_dict()
    log = tmp_path / "run.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b'"state":4', b'"state":5'))
    with pytest.raises(ad.DataLossError, match="the log is damaged"):
        ds.state_before(2)
    log.write_bytes(whole)
    with pytest.raises(ad.ResumeError, match=r"before step 3 is not known.* are before the steps 0, 4"):
        ds.state_before(3)


def test_what_the_log_does_not_have_or_is_not_so_now_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in range(9)))
    ds = ad.TextLineDataset([str(path)]).with_options(ad.Options(record=tmp_path / "run.jsonl"))
    read(ds, 6)
    assert next(ds.iterate(state=ds.state_before(5))) == b"5"
    for step in (7, 10):
        with pytest.raises(ad.DataLossError, match=f"no run in the log came to step {step}: the last step is 5"):
            ds.state_before(step)
    with pytest.raises(ad.ResumeError):
        ds.batch(2).state_before(3)
    with pytest.raises(ad.PlanError, match="give record="):
        pipeline().state_before(3)
    with pytest.raises(FileNotFoundError):
        pipeline().state_before(3, record=tmp_path / "none.jsonl")
    lines = ad.TextLineDataset([str(path)]).filter(lambda line: line != b"2")
    good = lines.with_options(ad.Options(record=tmp_path / "other.jsonl"))
    assert len([*good]) == 8
    path.write_text("".join(f"{line}\n" for line in (0, 1, 3, 2, 4, 5, 6, 7, 8)))
    with pytest.raises(ad.ResumeError):
        good.state_before(3)


def test_a_loader_goes_back(tmp_path: Path) -> None:
    loader = Loader(pipeline(tmp_path / "run.jsonl"))
    epochs = [lists(loader) for _ in range(2)]
    loader.load_state_dict(loader.state_before(15, epoch=0))
    assert lists(loader) == epochs[0][15:]
    assert lists(loader) == epochs[1]
