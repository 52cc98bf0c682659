"""The log of a run, and whether it shows each record once: over restarts, ranks and other numbers of ranks."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.checkpoint import load, merge_states
from asyncdata.cli.pipeline_file import pipeline_of
from asyncdata.integrations.loader import Loader
from asyncdata.persistence import run_log_files as log_files
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import Audit, audit
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs
from tests.recorder.rewriting import reseal, rewrite, steps_of


def pipeline(record: Path | None, count: int = 1, index: int = 0) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(100).shuffle(20, seed=1).shard(count, index)
    return ds.map(lambda x: x * x, num_parallel_calls=2).batch(4).with_options(ad.Options(record=record))


def train(ds: ad.Dataset[Any], state: Any = None, most: int = 1000, every: int = 3) -> Any:
    """Read with a state after every few batches, and be killed: what came after the last state is lost, and again."""
    with ds.iterate(state=state) as batches:
        for step, _ in enumerate(batches, 1):
            if step == most:
                return state
            if step % every == 0:
                state = batches.state_dict()
    return None


def seen(folder: Path, against: bool = False, pattern: str = "*.jsonl") -> list[Audit]:
    ds = pipeline(None)
    expected = ExpectedTickets(ds.plan, ds.options()) if against else None
    return audit(read_logs(paths_of([str(folder / pattern)])), expected)


@pytest.mark.parametrize("against", [False, True])
def test_a_run_that_was_killed_again_and_again_is_complete(tmp_path: Path, against: bool) -> None:
    choose, state = random.Random(1), None
    for _ in range(6):
        state = train(pipeline(tmp_path / "run.jsonl"), state, choose.randint(1, 6))
    (found,) = seen(tmp_path, against)
    assert not found.complete
    assert "not at the end" in str(found)
    train(pipeline(tmp_path / "run.jsonl"), state)
    (found,) = seen(tmp_path, against)
    assert found.complete
    assert (found.steps, found.records) == (25, 100)
    assert found.again > 0


def test_all_ranks_together_are_complete_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for index in range(3):
        ds = pipeline(tmp_path / "run.jsonl", 3, index)
        for _ in range(2):
            train(ds)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"run-{index}-of-3.jsonl" for index in range(3)]
    assert [str(one) for one in seen(tmp_path, against=True)] == [
        f"epoch {epoch}: 27 steps, 100 records: complete, each once" for epoch in (0, 1)
    ]
    (tmp_path / "run-1-of-3.jsonl").unlink()
    for found in seen(tmp_path):
        assert "rank 1 of 3 has no log" in str(found)
        assert not found.complete


@pytest.mark.parametrize("against", [False, True])
def test_another_number_of_ranks_goes_on_and_all_is_complete(tmp_path: Path, against: bool) -> None:
    states: list[Any] = []
    for index, most in enumerate([3, 1, 2, 2]):
        with pipeline(tmp_path / "run.jsonl", 4, index).iterate() as batches:
            for _ in range(most):
                next(batches)
            states.append(batches.state_dict())
            next(batches)
    state = merge_states(states)
    for index in range(3):
        middle = train(pipeline(tmp_path / "run.jsonl", 3, index), state, 5)
        train(pipeline(tmp_path / "run.jsonl", 3, index), middle)
    (found,) = seen(tmp_path, against)
    assert found.complete, str(found)
    assert found.records == 100


def test_ranks_that_gave_nothing_are_no_gap_and_every_missing_run_of_others_is_one(tmp_path: Path) -> None:
    log, states = tmp_path / "run.jsonl", list[Any]()
    for index, most in enumerate([3, 0, 2, 2]):
        with pipeline(log, 4, index).iterate() as batches:
            for _ in range(most):
                next(batches)
            states.append(batches.state_dict())
    with pipeline(log).iterate(state=merge_states(states)) as batches:
        state = merge_states([batches.state_dict()])  # stopped before the first step
    for index in range(3):
        train(pipeline(log, 3, index), train(pipeline(log, 3, index), state, 5))
    assert len([*tmp_path.iterdir()]) == 3 + 1 + 3
    (found,) = seen(tmp_path)
    assert found.complete, str(found)
    assert found.records == 100
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_text()
        _, *runs = whole.split('{"log"')
        for place in range(len(runs)):
            path.write_text("".join(f'{{"log"{run}' for run in runs[:place] + runs[place + 1 :]))
            assert not any(one.complete for one in seen(tmp_path)), (path, place)
        path.unlink()
        assert not any(one.complete for one in seen(tmp_path)), path
        path.write_text(whole)


def test_two_merges_of_states_at_the_end_are_no_gap(tmp_path: Path) -> None:
    log, state = tmp_path / "run.jsonl", None
    for ranks, most in ((2, 100), (3, 0), (2, 0)):
        states: list[Any] = []
        for index in range(ranks):
            with pipeline(log, ranks, index).iterate(state=state) as batches:
                assert sum(1 for _ in zip(range(most), batches, strict=False)) < 100
                states.append(batches.state_dict())
        state = merge_states(states)
        (found,) = seen(tmp_path)
        assert found.complete, str(found)
    (tmp_path / "run-2-of-3.jsonl").unlink()
    assert seen(tmp_path)[0].complete
    (tmp_path / "run-1-of-2.jsonl").unlink()
    assert not seen(tmp_path)[0].complete


def rewritten(path: Path, change: Callable[[list[Any]], None]) -> None:
    """Change the elements of the only run of a log."""
    steps = steps_of(path)
    change(steps)
    rewrite(path, steps)


def repeat(steps: list[Any]) -> None:
    steps[5][1]["of"][1] = steps[2][1]["of"][3]


def lose(steps: list[Any]) -> None:
    steps[5][1]["of"].pop()


def swap(steps: list[Any]) -> None:
    steps[5][1]["of"][0], steps[7][1]["of"][0] = steps[7][1]["of"][0], steps[5][1]["of"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (repeat, ["delivered twice", "step 2 of the one process and step 5", "not delivered"]),
        (lose, ["not delivered: record"]),
        (swap, ["did not get in step 5, 7 what the pipeline gives"]),
        (lambda steps: steps.pop(3), ["has no step 3 in its log"]),
        (lambda steps: steps[3].__setitem__(1, None), ["not known which records step 3"]),
    ],
)
def test_what_a_faulty_run_did_is_found(tmp_path: Path, change: Any, words: list[str]) -> None:
    train(pipeline(tmp_path / "run.jsonl"), every=1000)
    assert seen(tmp_path, against=True)[0].complete
    rewritten(tmp_path / "run.jsonl", change)
    (found,) = seen(tmp_path, against=True)
    assert not found.complete
    for one in words:
        assert one in str(found)


def damaged(text: str) -> str:
    return text.replace('"of":', '"fo":', 1)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damaged, id="a byte"),
        pytest.param(lambda text: text.replace("[4,", "[5,", 1), id="a number"),
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text.replace('{"log":4', '{"log":9', 1), id="another format"),
        pytest.param(lambda text: "\n".join(reversed(text.splitlines())), id="lines turned round"),
    ],
)
def test_a_log_that_was_changed_is_never_complete(tmp_path: Path, damage: Any) -> None:
    train(pipeline(tmp_path / "run.jsonl"))
    path = tmp_path / "run.jsonl"
    path.write_text(damage(path.read_text()))
    assert not any(one.complete for one in seen(tmp_path))


def test_a_log_that_was_cut_anywhere_is_never_complete(tmp_path: Path) -> None:
    train(pipeline(tmp_path / "run.jsonl"))
    path = tmp_path / "run.jsonl"
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        assert not any(one.complete for one in seen(tmp_path)), size


def test_a_log_in_which_any_byte_is_another_is_never_complete(tmp_path: Path) -> None:
    train(pipeline(tmp_path / "run.jsonl"))
    path, choose = tmp_path / "run.jsonl", random.Random(3)
    whole = path.read_bytes()
    assert seen(tmp_path)[0].complete
    for _ in range(100):
        place = choose.randrange(len(whole))
        byte = choose.choice([one for one in b'0123456789[]{},"\n aA' if one != whole[place]])
        path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        assert not any(one.complete for one in seen(tmp_path)), (place, byte)


def test_a_run_that_resumed_while_a_cache_was_filled_cannot_be_judged(tmp_path: Path) -> None:
    def cached() -> ad.Dataset[Any]:
        return ad.Dataset.range(20).cache().batch(4).with_options(ad.Options(record=tmp_path / "run.jsonl"))

    train(cached())
    assert seen(tmp_path)[0].complete
    state = train(cached(), most=4)
    train(cached(), state)
    assert "elements of a cache then have other names" in str(seen(tmp_path)[0])
    with pytest.raises(ad.PlanError, match="cannot be compared with"):
        ExpectedTickets(cached().plan, ad.Options())


def test_a_run_goes_on_in_a_log_whose_last_line_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    state = train(pipeline(path), most=5)
    path.write_bytes(path.read_bytes()[:-20])
    train(pipeline(path), state)
    (found,) = seen(tmp_path)
    assert found.complete, str(found)


def test_a_run_that_is_closed_when_the_next_one_has_begun_is_no_fault_and_one_that_goes_on_is(tmp_path: Path) -> None:
    ds = pipeline(tmp_path / "run.jsonl")
    with ds.iterate() as batches:
        next(batches)
        state = batches.state_dict()
        next(batches)
        assert len([*ds.iterate(state=state)]) == 24
    (found,) = seen(tmp_path)
    assert (found.complete, found.again) == (True, 1), str(found)
    with ds.iterate(state=state) as one, ds.iterate(state=state) as other:
        for batches in (one, other, one):
            next(batches)
            batches.state_dict()
    assert "two runs wrote it at once" in str(seen(tmp_path)[0])


def test_a_clock_that_was_put_back_does_not_change_the_order_of_the_runs_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    train(pipeline(path), train(pipeline(path), most=8))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    _, later = [line for line in lines if "log" in line]
    later["time"] = "2000-01-01T00:00:00.000000+00:00"
    reseal(path, lines)
    (found,) = seen(tmp_path, against=True)
    assert found.complete, str(found)
    lines[lines.index(later) + 2] = lines[2]  # what the run that counts did is wrong
    reseal(path, lines)
    assert not seen(tmp_path)[0].complete


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files there")
def test_what_a_full_disk_did_not_take_is_written_with_the_next_piece(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "run.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pipeline(path).iterate() as batches:
        for step, _ in enumerate(batches, 1):
            if step == 5:
                batches.state_dict()
                resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 30, hard))
                next(batches)
                try:
                    with pytest.raises(OSError, match="log could not be written completely"):
                        batches.state_dict()
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (found,) = seen(tmp_path, against=True)
    assert found.complete, str(found)


def test_logs_of_another_pipeline_or_seed_are_not_taken_together(tmp_path: Path) -> None:
    train(pipeline(tmp_path / "a.jsonl", 2, 0))
    other = ad.Dataset.range(100).shuffle(20, seed=2).shard(2, 1).map(lambda x: x * x, num_parallel_calls=2).batch(4)
    train(other.with_options(ad.Options(record=tmp_path / "b.jsonl")))
    (found,) = seen(tmp_path)
    assert "has another" in str(found)
    assert not found.complete


def test_looking_is_not_recorded_and_a_dataset_that_is_made_from_a_recorded_one_is_named(tmp_path: Path) -> None:
    ds = pipeline(tmp_path / "run.jsonl")
    assert ds.peek().size == 4
    assert len(ds.head(2)) == 2
    train(ds)
    (found,) = seen(tmp_path)
    assert found.complete
    _ = list(ds.take(2))
    assert "with take(2) too" in str(seen(tmp_path)[0])


def test_a_log_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (data := tmp_path / "data.jsonl").write_text('{"text": "a"}\n')
    wrong = {tmp_path: IsADirectoryError, tmp_path / "file" / "run.jsonl": OSError, data: ad.PlanError}
    for record, error in wrong.items():
        with pytest.raises(error):
            pipeline(record).iterate()
    assert data.read_text() == '{"text": "a"}\n'


def test_an_iteration_without_a_log_writes_nothing_and_one_with_it_gives_the_same(tmp_path: Path) -> None:
    without = [batch.tolist() for batch in pipeline(None)]
    assert [*tmp_path.iterdir()] == []
    assert [batch.tolist() for batch in pipeline(tmp_path / "run.jsonl")] == without


PROGRAM = """
import asyncdata as ad
ds = ad.Dataset.range(10).shuffle(10, seed=1).batch(4)
"""


def test_the_commands_audit_and_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, program = tmp_path / "run.jsonl", tmp_path / "pipe_of_the_recorder.py"
    program.write_text(PROGRAM)
    ds = ad.Dataset.range(10).shuffle(10, seed=1).batch(4).with_options(ad.Options(record=log))
    batches = [batch.tolist() for batch in ds]
    assert main(["audit", str(log), "--against", f"{program}:ds"]) == 0
    assert capsys.readouterr().out == "epoch 0: 3 steps, 10 records: complete, each once\n"
    assert main(["audit", str(log), "--coverage", f"{program}:ds"]) == 0
    assert capsys.readouterr().out.endswith("\n  range(10)        10 records |@@+|\n")
    assert main(["replay", str(log), f"{program}:ds", "--step", "1"]) == 0
    out = capsys.readouterr().out
    assert f"range(10) index {batches[1][0]}" in out
    assert str(batches[1]) in out
    assert main(["replay", str(log), f"{program}:ds", "--step", "1", "--records"]) == 0
    (tmp_path / "bad.jsonl").write_text(capsys.readouterr().out)
    without = ds.exclude(tmp_path / "bad.jsonl").with_options(ad.Options(record=tmp_path / "other.jsonl"))
    left = [x for batch in without for x in batch]
    assert sorted(left) == sorted({*range(10)} - {*batches[1]})
    assert main(["replay", str(log), f"{program}:ds", "--step", "9"]) == 1
    assert "no step 9, the last is 2" in capsys.readouterr().err
    assert main(["trace-record", "range(10):7", f"{program}:ds", str(log)]) == 0
    (step,) = [step for step, batch in enumerate(batches) if 7 in batch]
    assert f"epoch 0, step {step} of the one process: range(10) index 7" in capsys.readouterr().out
    assert main(["trace-record", "range(10)", f"{program}:ds", str(log)]) == 0
    assert capsys.readouterr().out.count("range(10) index") == 10
    assert main(["trace-record", "range(10):99", f"{program}:ds", str(log)]) == 1
    assert "no record of" not in capsys.readouterr().out
    assert main(["trace-record", "range(9):1", f"{program}:ds", str(log)]) == 1
    assert "no record of range(9), but of range(10)" in capsys.readouterr().out
    whole = log.read_bytes()
    log.write_bytes(whole[:-200])
    assert main(["audit", str(log)]) == 1
    log.write_bytes(whole.replace(b"[1,", b"[2,"))
    assert main(["trace-record", "range(10):7", f"{program}:ds", str(log)]) == 1
    said = capsys.readouterr()
    assert "in none of these logs, as far as they can be read" in said.out
    assert "does not have the hash that it had" in said.err


KILLED = """
import os, sys, signal
import asyncdata as ad
from asyncdata.checkpoint import load, save
log, state = sys.argv[1:]
ds = ad.Dataset.range(100).shuffle(20, seed=1).batch(4).with_options(ad.Options(record=log))
with ds.iterate(state=load(state) if os.path.exists(state) else None) as batches:
    for step, batch in enumerate(batches, 1):
        if step == 4:
            save(state, batches.state_dict())
        if step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_was_killed_loses_only_steps_after_its_last_state(tmp_path: Path) -> None:
    log, state, program = tmp_path / "run.jsonl", tmp_path / "state.json", tmp_path / "killed.py"
    program.write_text(KILLED)
    assert subprocess.run([sys.executable, str(program), str(log), str(state)], check=False).returncode == -9
    (found,) = audit(read_logs([str(log)]))
    assert found.because == ["the one process is not at the end of the epoch: 4 steps are in its log"]
    ds = ad.Dataset.range(100).shuffle(20, seed=1).batch(4).with_options(ad.Options(record=log))
    assert len([*ds.iterate(state=load(state))]) == 21
    (found,) = audit(read_logs([str(log)]))
    assert found.complete


def test_a_loader_records_each_epoch(tmp_path: Path) -> None:
    loader = Loader(pipeline(tmp_path / "run.jsonl"))
    for _ in range(2):
        for _ in loader:
            pass
        loader.state_dict()
    assert [(one.epoch, one.complete) for one in seen(tmp_path)] == [(0, True), (1, True)]


def test_a_long_log_goes_on_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_files, "FULL", 520)
    log, program = tmp_path / "run.jsonl", tmp_path / "pipe_in_parts.py"
    program.write_text(PROGRAM.replace("10", "100"))
    ds = pipeline_in(program).with_options(ad.Options(record=log))
    train(ds, train(ds, most=14))
    paths = paths_of([str(log)])
    assert 4 < len(paths) == len([*tmp_path.glob("run*.jsonl")])
    assert paths_of([f"{tmp_path}/run*.jsonl"]) == paths == paths_of(paths[::-1])
    (found,) = audit(read_logs(paths))
    assert (found.complete, found.again, found.records) == (True, 2, 100), str(found)
    whole = [batch.tolist() for batch in pipeline_in(program)]
    for step in (3, 13, 20):
        assert [batch.tolist() for batch in ds.iterate(state=ds.state_before(step, epoch=0))] == whole[step:]
    assert main(["replay", str(log), f"{program}:ds", "--step", "13", "--epoch", "0"]) == 0
    assert str(whole[13]) in capsys.readouterr().out
    for path in paths[:-1]:
        content = Path(path).read_bytes()
        Path(path).unlink()
        assert not audit(read_logs([one for one in paths if one != path]))[0].complete, path
        Path(path).write_bytes(content)


def pipeline_in(program: Path) -> ad.Dataset[Any]:
    return pipeline_of(f"{program}:ds")


def test_a_log_is_a_file_or_objects() -> None:
    for wrong in (3, "s3://ann:secret@host/run.jsonl", "https://example.org/run.jsonl", "sftp://example.org/run.jsonl"):
        with pytest.raises(ad.PlanError, match="must be the path of a file of this machine, as 'run.jsonl', of an obj"):
            ad.Options(record=wrong)  # type: ignore[arg-type]


def test_repeats_that_the_pipeline_asks_for_are_no_fault_and_one_more_is(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    turns = ad.Dataset.range(20).shuffle(seed=1).repeat(2).batch(4).with_options(ad.Options(record=log))
    train(turns, train(turns, most=5))
    (found,) = seen(tmp_path)
    assert str(found).endswith(": complete, each once in each turn of repeat")
    log.unlink()
    channel = ad.Channel()
    channel.send_nowait([*range(12)])
    channel.close()
    replayed = ad.Dataset.from_channel(channel, window=4, replay=3, sample="uniform", seed=1).batch(4)
    train(replayed.with_options(ad.Options(record=log)), every=1000)
    (found,) = seen(tmp_path)
    assert str(found) == "epoch 0: 9 steps, 36 records: complete, each once"  # of each of three draws
    rewritten(log, repeat)
    (found,) = seen(tmp_path)
    assert not found.complete
    assert "delivered twice" in str(found)


@pytest.mark.parametrize("name", ["a.jsonl", "z.jsonl"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_copy_of_a_log_is_not_read_as_another_run(tmp_path: Path, name: str, whole: bool) -> None:
    log = tmp_path / "run.jsonl"
    with pipeline(log).iterate() as batches:
        for step, _ in enumerate(batches):
            if step == 9:
                batches.state_dict()
                (tmp_path / name).write_bytes(log.read_bytes())
    if whole:
        (tmp_path / name).write_bytes(log.read_bytes())
    (found,) = seen(tmp_path)
    assert (found.complete, found.again, found.steps) == (True, 0, 25), str(found)
    assert "a copy of a run in" in found.notes[0]
