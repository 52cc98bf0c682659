"""States in files: whole or not at all, whatever happens while they are written, and what is no state."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import inspect_state, load, load_shares, merge_states, save, save_share
from asyncdata.errors import ResumeError
from tests.faults.resumed import pipeline
from tests.states import edited

ROOT = Path(__file__).parents[1]
SMALL = {"version": 1, "number": 0}
LARGE = {"version": 1, "bulk": [0] * 200_000}


def state_after(count: int) -> dict[str, Any]:
    with ad.Dataset.range(10).iterate() as elements:
        for _ in range(count):
            next(elements)
        return elements.state_dict()


# whole or not at all


def test_what_is_saved_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("state.json", str(tmp_path / "a state"), tmp_path / "ステート.json"):
        for count in (3, 7):
            save(path, state_after(count))
            assert load(path) == state_after(count)
            assert next(ad.Dataset.range(10).iterate(state=load(path))) == count
    assert sorted(os.listdir(tmp_path)) == ["a state", "state.json", "ステート.json"]


@pytest.mark.parametrize("kind", ["link", "broken link", "pipe", "folder"])
def test_only_a_file_is_replaced(tmp_path: Path, kind: str) -> None:
    save(tmp_path / "old.json", state_after(1))
    path = tmp_path / "latest.json"
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to("old.json"),
        "broken link": lambda: path.symlink_to("nothing"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[kind]()
    before = path.lstat().st_mode
    with pytest.raises(FileExistsError, match=r"a state replaces a file.*latest\.json"):
        save(path, state_after(2))
    assert path.lstat().st_mode == before
    assert load(tmp_path / "old.json")["delivered"] == 1
    assert sorted(os.listdir(tmp_path)) == ["latest.json", "old.json"]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_a_state_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"version": 3, "position": ' + nested(200_000) + "}")
    with pytest.raises(ResumeError, match="nested too deeply"):
        load(tmp_path / "state.json")
    position: Any = 0
    for _ in range(5_000):
        position = [position]
    state = {**state_after(1), "position": position}
    with pytest.raises(ResumeError):
        ad.Dataset.range(10).iterate(state=state)
    del state["checksum"]
    with pytest.raises(ResumeError):
        next(ad.Dataset.range(10).batch(2).iterate(state=state))


def test_what_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save(path, SMALL)
    with pytest.raises(TypeError, match="not JSON serializable"):
        save(path, {"version": 1, "model": object()})
    assert load(path) == SMALL
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "no" / "state.json", SMALL)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("place", "code"), [("small_disk", errno.ENOSPC), ("small_files", errno.EFBIG)])
def test_no_room_leaves_the_old_file_and_nothing_else(place: str, code: int, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(place)
    path = folder / "state.json"
    save(path, SMALL)
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            save(path, LARGE)
        assert caught.value.errno == code
        assert load(path) == SMALL
        assert os.listdir(folder) == ["state.json"]
    save(path, {**SMALL, "number": 1})
    assert load(path)["number"] == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "the disk is broken")], ids=repr)
def test_a_save_that_is_broken_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise error

    path = tmp_path / "state.json"
    save(path, SMALL)
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(os, step, broken)
        save(path, LARGE)
    assert load(path) == SMALL
    assert os.listdir(tmp_path) == ["state.json"]


# processes that are killed


def start(*arguments: str) -> subprocess.Popen[str]:
    program = ROOT / "tests" / "faults" / "resumed.py"
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(program), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,  # so that it waits until its lines are read, however late that is
    )


def kill_after(process: subprocess.Popen[str], saves: int) -> None:
    """Let it save so often, and kill it in whatever it does next."""
    assert process.stdout is not None
    for _ in range(saves):
        assert process.stdout.readline().strip() == "saved", process.communicate()[1]
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_the_file_of_a_process_that_is_killed_while_it_saves_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for saves in (1, 2, 3, 6, 9, 14):
        kill_after(start("save", str(tmp_path)), saves)
        state = load(path)
        assert state["number"] >= saves - 1
        assert len(state["bulk"]) == state["number"] % 5 * 100_000
    save(path, SMALL)  # what the killed ones have left beside it is in nobody's way
    assert load(path) == SMALL


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_gives_every_element_once_and_in_order(tmp_path: Path) -> None:
    size = 2700
    for number in range(9):
        with ad.TFRecordWriter(tmp_path / f"{number}.tfrecord") as writer:
            for record in range(number, size, 9):
                writer.write(b"%d" % record)
    states: list[dict[str, Any]] = []
    moments = random.Random(7)
    for saves in (1, *(moments.randrange(12) for _ in range(14))):
        kill_after(start("train", str(tmp_path)), saves)
        states.append(load(tmp_path / "state.json"))
    out, err = start("train", str(tmp_path)).communicate(timeout=100)
    assert (out.splitlines()[-1], err) == ("done", "")
    log = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert sorted(log) == list(range(size))
    delivered = [state["delivered"] for state in states]
    assert (len(delivered), delivered) == (15, sorted(delivered))
    assert 0 < delivered[0] < delivered[-1] < size
    beginning = edited(states[0], delivered=0, position=None)  # with the seeds that the first process drew
    assert log == list(pipeline(tmp_path).iterate(state=beginning))


# what is no state


@pytest.mark.parametrize(
    "content",
    [b"", b"no state", b'{"version": 1', b"[1, 2]", b"7", b"null", b'{"step": 3}', b"\x80\x04\x95", b"\xff" * 9],
)
def test_a_file_that_holds_no_state_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(ResumeError, match=r"model\.bin: not a state"):
        load(path)


def test_what_would_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ad.PlanError, match=r"takes what state_dict\(\) returns, got \{'step': 1"):
        save(tmp_path / "state", {"step": 1, "loader": state_after(3)})
    for state in (None, 3, "version", [state_after(3)]):
        with pytest.raises(ad.PlanError, match=r"takes what state_dict\(\) returns, got "):
            save(tmp_path / "state", state)  # type: ignore[arg-type]
    for changed in ({"step": 1}, {"epoch": 7}):
        with pytest.raises(ad.PlanError, match="this state was changed since"):
            save(tmp_path / "state", {**state_after(3), **changed})
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_there_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "state.json")


def test_a_file_of_another_version_is_loaded_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save(path, edited(state_after(3), version=99))
    with pytest.raises(ResumeError, match="the state has version 99, this asyncdata reads versions 2 to 5"):
        ad.Dataset.range(10).iterate(state=load(path))


# a readable account


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "position   at the beginning"), (3, "position   3"), (10, "position   10")]
)
def test_an_account_of_a_state(count: int, shown: str) -> None:
    lines = inspect_state(state_after(count)).splitlines()
    assert lines[:4] == ["plan       range(10)", "epoch      0", f"delivered  {count}", shown]
    assert lines[4].split() == ["size", str(len(json.dumps(state_after(count), separators=(",", ":")))), "bytes"]


def test_an_account_of_the_end() -> None:
    with ad.Dataset.range(10).shuffle(3).iterate() as elements:
        list(elements)
        assert "position   at the end" in inspect_state(elements.state_dict())


@pytest.mark.parametrize("state", [{}, {"step": 7}, {"version": 1}], ids=str)
def test_an_account_of_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(ResumeError):
        inspect_state(state)


@pytest.mark.parametrize("turn", ["1", None, [], -1, 1.5])
def test_a_position_that_is_damaged_is_refused(turn: Any) -> None:
    ds = ad.Dataset.range(3).repeat(4)
    with ds.iterate() as elements:
        _ = [next(elements) for _ in range(5)]
        state = edited(elements.state_dict())
    state["position"][0] = turn
    with pytest.raises(ad.ResumeError, match=r"repeat\(4\): the state's position .* does not fit this step"):
        next(ad.Dataset.range(3).repeat(4).iterate(state=state))


def test_a_turn_behind_the_last_is_the_end() -> None:
    ds = ad.Dataset.range(3).repeat(4)
    with ds.iterate() as elements:
        next(elements)
        state = edited(elements.state_dict())
    state["position"][0] = 9
    assert list(ad.Dataset.range(3).repeat(4).iterate(state=state)) == []


def test_what_goes_wrong_deep_down_with_a_damaged_state_is_a_refusal_too() -> None:
    ds = ad.Dataset.range(9).interleave(lambda _: ad.Dataset.range(3))
    with ds.iterate() as elements:
        next(elements)
        state = edited(elements.state_dict())
    state["position"]["outer"]["back"] = 1.5
    with pytest.raises(ad.ResumeError, match="the state is damaged, or does not fit"):
        next(ds.iterate(state=state))


def shares_in(folder: Path, count: int, steps: list[int]) -> list[int]:
    """Save the states of so many shares, each after some batches, and return what was read."""
    read: list[int] = []
    for index, most in enumerate(steps):
        with shared(count, index).iterate() as batches:
            read += [x for _ in range(most) for x in next(batches).tolist()]
            save_share(folder, batches.state_dict())
    return read


def shared(count: int, index: int) -> ad.Dataset[Any]:
    return ad.Dataset.range(24).shuffle(seed=1).shard(count, index).batch(2)


def test_each_process_finds_its_own_state_in_a_folder(tmp_path: Path) -> None:
    shares_in(tmp_path, 3, [1, 2, 0])
    for index, done in enumerate([1, 2, 0]):
        rest = [batch.tolist() for batch in shared(3, index).iterate(state=load_shares(tmp_path))]
        assert rest == [batch.tolist() for batch in shared(3, index)][done:]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_another_number_of_processes_goes_on_with_all_states_of_a_folder(tmp_path: Path, count: int) -> None:
    read = shares_in(tmp_path, 3, [1, 2, 0])
    for index in range(count):
        read += [x for batch in shared(count, index).iterate(state=load_shares(tmp_path)) for x in batch.tolist()]
    assert sorted(read) == [*range(24)]


def test_one_state_of_all_where_nothing_is_shared(tmp_path: Path) -> None:
    with ad.Dataset.range(5).iterate() as numbers:
        next(numbers)
        save_share(tmp_path, numbers.state_dict())
    assert [path.name for path in tmp_path.iterdir()] == ["asyncdata.json"]
    assert [*ad.Dataset.range(5).iterate(state=load_shares(tmp_path))] == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [2, 3])
def test_processes_that_read_the_same_share_have_one_state(count: int) -> None:
    """As those of one model that is divided among them."""
    states = list[Any]()
    for index in (0, 0, 1, 1):
        with shared(2, index).iterate() as batches:
            next(batches)
            states.append(batches.state_dict())
    rest = [batch for index in range(count) for batch in shared(count, index).iterate(state={"ranks": states})]
    assert sum(len(batch) for batch in rest) == 20


def divided_again(outer: int, inner: int) -> ad.Dataset[Any]:
    return ad.Dataset.range(24).shard(2, outer).shard(3 if outer else 2, inner)


NESTED = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def nested_states(shares: list[tuple[int, int]]) -> dict[str, Any]:
    states: list[Any] = []
    for outer, inner in shares:
        with divided_again(outer, inner).iterate() as numbers:
            next(numbers)
            states.append(numbers.state_dict())
    return {"ranks": states}


def test_each_process_finds_its_state_where_shares_are_divided_again() -> None:
    for outer, inner in NESTED:
        rest = [*divided_again(outer, inner).iterate(state=nested_states(NESTED))]
        assert rest == [*divided_again(outer, inner)][1:]


@pytest.mark.parametrize("gone", NESTED)
def test_a_missing_share_of_a_share_is_an_error(gone: tuple[int, int]) -> None:
    state = nested_states([one for one in NESTED if one != gone])
    for outer, inner in NESTED:
        with pytest.raises(ad.ResumeError, match="one state of each share"):
            divided_again(outer, inner).iterate(state=state)


@pytest.mark.parametrize("shares", [[(0, 0), (1, 1)], [(0, 1), (1, 0)]])
def test_states_of_several_shares_that_were_divided_again_are_not_merged(shares: list[tuple[int, int]]) -> None:
    def quarter(outer: int, inner: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(24).shard(2, outer).shard(2, inner)

    states: list[Any] = []
    for outer, inner in shares:
        with quarter(outer, inner).iterate() as numbers:
            next(numbers)
            states.append(numbers.state_dict())
    with pytest.raises(ad.ResumeError, match="shard"):
        quarter(0, 0).iterate(state=merge_states(states))


def test_states_of_several_checkpoints_are_refused(tmp_path: Path) -> None:
    for checkpoint, indices in ((100, (0, 1, 2)), (200, (1,))):
        for index in indices:
            with shared(3, index).iterate() as batches:
                next(batches)
                save_share(tmp_path, batches.state_dict(), checkpoint)
    message = "not of one checkpoint: asyncdata-0-of-3.json of checkpoint 100, asyncdata-1-of-3.json of checkpoint 200"
    with pytest.raises(ad.ResumeError, match=message):
        load_shares(tmp_path)
    save_share(tmp_path, load(tmp_path / "asyncdata-1-of-3.json"), 100)
    assert len([*shared(3, 1).iterate(state=load_shares(tmp_path))]) == 3


def test_a_folder_without_all_states_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ad.ResumeError, match=r"no state found: save_share writes files asyncdata\*.json"):
        load_shares(tmp_path)
    shares_in(tmp_path, 3, [1, 1, 1])
    (tmp_path / "asyncdata-1-of-3.json").unlink()
    found = "a process has not saved .* found asyncdata-0-of-3.json, asyncdata-2-of-3.json: give each checkpoint a"
    with pytest.raises(ad.ResumeError, match=found):
        load_shares(tmp_path)
    (tmp_path / "asyncdata-2-of-3.json").unlink()
    for count, index in ((3, 1), (2, 0)):  # one state alone may be all that a process reads
        with pytest.raises(ad.ResumeError, match="one state of each share"):
            shared(count, index).iterate(state=load_shares(tmp_path))


def test_files_of_another_number_of_processes_are_refused_with_what_to_do(tmp_path: Path) -> None:
    shares_in(tmp_path, 2, [1, 1])
    shares_in(tmp_path, 9, [1] * 9)
    with pytest.raises(
        ad.ResumeError, match=r"another number of processes are left; .* and 3 more: give each checkpoint"
    ):
        load_shares(tmp_path)


def test_a_state_needs_a_folder_that_exists(tmp_path: Path) -> None:
    with ad.Dataset.range(3).iterate() as numbers:
        state = numbers.state_dict()
    for write in (lambda: save(tmp_path / "none" / "a.json", state), lambda: save_share(tmp_path / "none", state)):
        with pytest.raises(FileNotFoundError, match="there is no such folder, make it first") as caught:
            write()
        assert caught.value.filename == str(tmp_path / "none")
