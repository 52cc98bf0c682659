"""Which run a log is of: what is resumed goes on with its run, and the logs of two runs are not taken for one."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.persistence import run_id as ids
from asyncdata.persistence import run_log_files as log_files
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import Audit, audit
from asyncdata.recorder.log_reader import read_logs, step_origin


def pipeline(log: Path, count: int = 1, index: int = 0) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(100).shuffle(20, seed=1).shard(count, index).batch(4)
    return ds.with_options(ad.Options(record=log))


def read(ds: ad.Dataset[Any], most: int = 1000, state: Any = None) -> Any:
    """Read so many batches, and return the state after them."""
    with ds.iterate(state=state, epoch=None if state else 0) as batches:
        for _ in zip(range(most), batches, strict=False):
            pass
        return json.loads(json.dumps(batches.state_dict()))


class Clock(datetime):
    """Stands still until it is set."""

    time_now = datetime(2026, 11, 29, tzinfo=UTC)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return cls.time_now.astimezone(tz)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after which the program is another process: of a job, if one is given."""

    def start(job: str = "") -> None:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        ids.run_id.cache_clear()

    yield start
    ids.run_id.cache_clear()


def seen(folder: Path) -> Audit:
    (found,) = audit(read_logs(paths_of([f"{folder}/*.jsonl"])))
    return found


def run_of(state: Any) -> list[str]:
    return state["run"]


def test_what_is_resumed_goes_on_with_the_run_that_saved_the_state(tmp_path: Path, process: Any) -> None:
    state, path = read(pipeline(tmp_path / "run.jsonl"), 7), tmp_path / "run.jsonl"
    process()
    again = pipeline(path)
    later = read(again, 9, state)
    assert run_of(later) == run_of(state)
    read(again, state=later)
    with again.iterate() as next_epoch:
        assert run_of(next_epoch.state_dict()) == run_of(state)
    assert run_of(read(pipeline(path), 3)) != run_of(state)
    unrecorded = ad.Dataset.range(3).iterate().state_dict()
    assert "run" not in unrecorded


def test_only_the_steps_of_the_last_run_count_and_those_of_others_are_said(tmp_path: Path, process: Any) -> None:
    read(pipeline(tmp_path / "a.jsonl"), 7)
    process()
    read(pipeline(tmp_path / "b.jsonl"))
    assert str(seen(tmp_path)) == (
        "epoch 0: 25 steps, 100 records; 7 steps are of another run, and do not count: complete, each once"
    )


def test_a_run_whose_beginning_is_only_in_the_logs_of_another_one_is_not_complete(tmp_path: Path, process: Any) -> None:
    state = read(pipeline(tmp_path / "a.jsonl"), 7)
    process()
    other = read(pipeline(tmp_path / "b.jsonl"), 9)
    read(pipeline(tmp_path / "a.jsonl"), state=state)
    assert seen(tmp_path).complete
    (tmp_path / "a.jsonl").unlink()
    read(pipeline(tmp_path / "a.jsonl"), state=state)
    words = f"has no step 0 to 6 of run {run_of(state)[0]} in its log"
    assert words in str(seen(tmp_path))
    read(pipeline(tmp_path / "b.jsonl"), state=other)
    assert seen(tmp_path).complete


def test_ranks_of_two_jobs_are_not_one_run(tmp_path: Path, process: Any) -> None:
    log, states = tmp_path / "run.jsonl", list[Any]()
    for index, job in enumerate(["7", "7", "8"]):
        process(job)
        states.append(read(pipeline(log, 3, index)))
    assert re.search(r"rank 2 of 3 is of run job-\w+, and rank 0 of 3 is of run job-\w+", str(seen(tmp_path)))
    read(pipeline(log, 3, 0))
    read(pipeline(log, 3, 1))
    assert seen(tmp_path).complete


@pytest.mark.parametrize("mixed", [False, True])
def test_after_a_change_of_ranks_the_logs_must_be_of_the_runs_whose_states_were_merged(
    tmp_path: Path, process: Any, mixed: bool
) -> None:
    log, states = tmp_path / "run.jsonl", list[Any]()
    for index in range(3):
        process()
        states.append(read(pipeline(log, 3, index), 3))
    process()
    if mixed:
        (tmp_path / "run-1-of-3.jsonl").unlink()
        read(pipeline(log, 3, 1), 3)
    for index in range(2):
        process()
        middle = read(pipeline(log, 2, index), 2, merge_states(states))
        assert run_of(middle) == sorted(one for state in states for one in run_of(state))
        read(pipeline(log, 2, index), state=middle)
    found = seen(tmp_path)
    assert found.complete is not mixed, str(found)
    assert ("rank 1 of 3 is of run" in str(found)) is mixed


def test_a_log_and_a_state_without_an_id_go_on_as_before(tmp_path: Path, process: Any) -> None:
    plain = pipeline(tmp_path / "run.jsonl").with_options(ad.Options(record=False))
    state = read(plain, 7)
    read(pipeline(tmp_path / "run.jsonl"), state=state)
    assert "run" not in json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])
    assert "has no step 0 to 6 in its log" in str(seen(tmp_path))
    with pytest.raises(ad.ResumeError, match="checksum|run"):
        read(plain, state={**state, "run": 7})


def test_processes_that_each_read_everything_are_not_one_that_was_started_again(
    tmp_path: Path, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        process("7")
        monkeypatch.setenv("RANK", str(rank))
        read(pipeline(tmp_path / "run.jsonl"))
    found = seen(tmp_path)
    assert found.because == [
        "rank 0 and rank 1 each read all of it: give each a share, as shard() does, or record one alone"
    ]
    (tmp_path / "run.jsonl").unlink()
    state = read(pipeline(tmp_path / "run.jsonl"), 7)
    monkeypatch.setenv("RANK", "0")  # which may have another number after a restart
    assert "rank" not in pipeline(tmp_path / "run.jsonl").state_before(5)
    read(pipeline(tmp_path / "run.jsonl"), state=state)
    assert seen(tmp_path).complete


def test_processes_that_each_go_on_from_one_state_are_not_one_that_was_started_again(
    tmp_path: Path, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = read(pipeline(tmp_path / "run.jsonl"), 7)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        read(pipeline(tmp_path / "run.jsonl"), state=state)
    assert seen(tmp_path).because == [
        "rank 0 and rank 1 each read all of it: give each a share, as shard() does, or record one alone"
    ]


@pytest.mark.parametrize("same", [True, False])
def test_of_processes_that_each_read_everything_the_slower_one_is_not_taken_for_one_that_went_back(
    tmp_path: Path, process: Any, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    process("7")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    logs = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    for epoch in (0, 1):
        _ = [*pipeline(logs[0]).iterate(epoch=epoch)]
    monkeypatch.setenv("RANK", "0" if same else "1")
    _ = [*pipeline(logs[1]).iterate(epoch=0)]
    words = str(audit(read_logs([*map(str, logs)]))[1])
    assert ("rank 0 and rank 1 each read all of it" in words) is ("the log cannot tell whether" in words) is not same
    assert (": what learned from this epoch is gone" in words) is same


def test_epochs_that_came_after_where_a_run_went_back_to_are_gone_until_it_has_come_to_them_again(
    tmp_path: Path,
) -> None:
    first, branch = pipeline(tmp_path / "run.jsonl"), pipeline(tmp_path / "branch.jsonl")
    for epoch in range(3):
        _ = [*first.iterate(epoch=epoch)]
    with branch.iterate(state=first.state_before(7, epoch=1)) as batches:
        again = [batch.tolist() for batch in batches]
        state = batches.state_dict()
    alone = audit(read_logs([str(tmp_path / "run.jsonl")]))
    assert [one.complete for one in alone] == [True, True, True], "the first branch goes on as it was"
    logs = read_logs(paths_of([f"{tmp_path}/*.jsonl"]))
    both = audit(logs)
    assert [one.complete for one in both] == [True, True, False]
    assert both[1].again == 25 - 7
    words = "the one process went back to step 7 of epoch 1 afterwards, "
    assert both[2].because == [f"{words}{tmp_path / 'branch.jsonl'}: what learned from this epoch is gone"]
    assert next(first.replay([step_origin(logs, 20, 1)])).tolist() == again[20 - 7]
    _ = [*branch.iterate(state=state)], [*branch.iterate(epoch=2)]
    assert all(one.complete for one in audit(read_logs(paths_of([f"{tmp_path}/*.jsonl"]))))


def test_each_rank_that_went_back_must_come_to_the_later_epoch_again(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    states = list[Any]()
    for index in (0, 1):
        states.append(read(pipeline(log, 2, index), 4))
        read(pipeline(log, 2, index), state=states[index])
    for index in (0, 1):
        _ = [*pipeline(log, 2, index).iterate(epoch=1)]
    for state, index in zip(states, (0, 1), strict=True):
        read(pipeline(log, 2, index), state=state)
    for index, complete in ((0, False), (1, True)):
        _ = [*pipeline(log, 2, index).iterate(epoch=1)]
        assert [one.complete for one in audit(read_logs(paths_of([f"{tmp_path}/*.jsonl"])))] == [True, complete]


@pytest.mark.parametrize(("step", "complete"), [(0, False), (1, False), (25, True)])
def test_a_run_goes_back_to_a_beginning_and_not_to_where_an_epoch_ends(
    step: int, complete: bool, tmp_path: Path
) -> None:
    ds = pipeline(tmp_path / "run.jsonl")
    for epoch in (0, 1):
        _ = [*ds.iterate(epoch=epoch)]
    read(ds, state=ds.state_before(step, epoch=0))
    assert [one.complete for one in audit(read_logs([str(tmp_path / "run.jsonl")]))] == [True, complete]


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_step_is_that_of_the_branch_that_began_last_whatever_the_names_of_the_logs(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    first, branch = [tmp_path / f"{name}.jsonl" for name in names]
    read(pipeline(first), 20)
    better = pipeline(branch)
    better = better.exclude([step_origin(read_logs([str(first)]), 8, 0)])
    with better.iterate(state=pipeline(first).state_before(7)) as batches:
        again = [batch.tolist() for batch in batches]
    logs = read_logs(paths_of([f"{tmp_path}/*.jsonl"]))
    assert [next(better.replay([step_origin(logs, step, 0)])).tolist() for step in (7, 8, 15)] == [
        again[0],
        again[1],
        again[8],
    ]


@pytest.mark.parametrize("back", [0, 60], ids=["stands", "goes back"])
def test_parts_of_a_log_are_in_the_order_in_which_they_were_written_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    monkeypatch.setattr(log_files, "FULL", 1)
    monkeypatch.setattr(log_files, "datetime", Clock)
    ds = pipeline(tmp_path / "run.jsonl")
    state = read(ds, 7)
    monkeypatch.setattr(Clock, "time_now", Clock.time_now - timedelta(seconds=back))
    with ds.iterate(state=state) as batches:
        _ = [*batches]
    assert seen(tmp_path).complete
    monkeypatch.setattr(Clock, "time_now", Clock.time_now - timedelta(seconds=back))
    read(ds, 2, state)
    assert seen(tmp_path).because == ["the one process is not at the end of the epoch: 9 steps are in its log"]
    read(ds)
    assert seen(tmp_path).complete


def test_runs_of_one_log_are_no_copies_where_the_clock_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "datetime", Clock)
    read(pipeline(tmp_path / "run.jsonl"))
    read(pipeline(tmp_path / "run.jsonl"), 2)
    assert seen(tmp_path).because == ["the one process is not at the end of the epoch: 2 steps are in its log"]


def test_a_log_whose_parts_may_not_be_listed_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        patch.setattr(log_files, "parts_of", refuse)
        read(pipeline(tmp_path / "run.jsonl"))
    assert seen(tmp_path).complete
