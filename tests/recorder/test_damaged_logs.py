"""Logs of which anything says something else, though their hashes are right: sentences, never other errors."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.errors import AsyncDataError
from asyncdata.persistence import run_log_lines
from asyncdata.recorder.audit import Audit, audit
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs, step_origin
from tests.marks import first_by_default
from tests.recorder.rewriting import reseal


def regular() -> ad.Dataset[Any]:
    return ad.Dataset.sample_from_datasets([ad.Dataset.range(200), ad.Dataset.range(200)], [2, 1], seed=3)


PIPELINES: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "buffer": lambda: ad.Dataset.range(400).shuffle(20, seed=1).batch(8),
    "everything": lambda: ad.Dataset.range(400).shuffle(seed=1).repeat(2).batch(8),
    "packed": lambda: ad.Dataset.range(400).filter(lambda x: x % 7 > 0).shuffle(50, seed=2).batch(8),
    "deflated": lambda: regular().batch(8),
    "elements": lambda: regular(),
    "lines": lambda: ad.Dataset.range(400).batch(10).unbatch().batch(8),
}

WRONG: list[Any] = [None, True, -1, 1 << 40, 1 << 62, 10**30, 0.5, "", "zz", [], [[1]], {}, {"of": [1]}, [1, 2, 3]]


def written(build: Callable[[], ad.Dataset[Any]], path: Path) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log_lines, "WORTH", 1)
        with build().with_options(ad.Options(record=path)).iterate(epoch=0) as elements:
            for step, _ in enumerate(elements):
                if step % 200 in (10, 20):
                    elements.state_dict()
    assert seen(build, path, True).complete
    return [json.loads(line) for line in path.read_text().splitlines()]


def seen(build: Callable[[], ad.Dataset[Any]], path: Path, against: bool = False) -> Audit:
    ds = build()
    return audit(read_logs([str(path)]), ExpectedTickets(ds.plan, ds.options()) if against else None)[0]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the values in a value are, the first few of each list."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for name, part in pairs:
        yield (*path, name)
        yield from places(part, (*path, name))


def with_one_wrong(lines: list[Any], which: int) -> Iterator[list[Any]]:
    """Yield logs with another value in one place, in each place another one; and without it."""
    for number, line in enumerate(lines):
        for place, (*path, name) in enumerate(places(line)):
            for gone in (False, True):
                found = copy.deepcopy(lines)
                inner = found[number]
                for part in path:
                    inner = inner[part]
                if gone:
                    del inner[name]
                else:
                    inner[name] = WRONG[(place + number + which) % len(WRONG)]
                yield found


@pytest.mark.parametrize(
    ("which", "kind"), first_by_default([(which, kind) for which in range(0, len(WRONG), 4) for kind in PIPELINES], 3)
)
def test_whatever_a_log_says_there_is_an_answer(tmp_path: Path, kind: str, which: int) -> None:
    build, path = PIPELINES[kind], tmp_path / "run.jsonl"
    for number, lines in enumerate(with_one_wrong(written(build, path), which)):
        with suppress(TypeError, ValueError, AttributeError):  # what cannot be sealed
            reseal(path, lines)
        assert isinstance(str(seen(build, path, number % 8 == 0)), str)
        logs, step = read_logs([str(path)]), (0, 15, 30)[number % 3]
        with suppress(AsyncDataError):
            build().locate(step_origin(logs, step, 0))
        with suppress(AsyncDataError):
            build().state_before(step, record=path, epoch=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": [0, 1 << 40]}, "line 4 is damaged"),
        ({"steps": [1 << 62, 2]}, "line 4 is damaged"),
        ({"each": 1 << 40}, "step 0 to 10 of the one process had: {path}: line 4 is damaged"),
        ({"of": {"packed": 88, "columns": []}}, "had: {path}: line 4 is damaged"),
    ],
)
def test_numbers_that_no_log_has_take_no_memory_and_the_line_is_named(tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "run.jsonl"
    lines = written(PIPELINES["buffer"], path)
    assert "steps" in lines[3]
    lines[3].update(change)
    reseal(path, lines)
    found = seen(PIPELINES["buffer"], path)
    assert not found.complete
    assert words.replace("{path}", str(path)) in str(found)


@pytest.mark.parametrize("end", [1 << 61, "9", None])
def test_an_end_that_no_run_came_to_is_not_complete(tmp_path: Path, end: Any) -> None:
    path = tmp_path / "run.jsonl"
    lines = written(PIPELINES["buffer"], path)
    lines[-1]["end"] = end
    reseal(path, lines)
    found = seen(PIPELINES["buffer"], path)
    assert not found.complete
    assert str(path) in str(found)


@pytest.mark.parametrize("shares", [[[1 << 40, 3]], [[0, 0]], [[2, 2]], [[2, -1]], [[2]], [[1 << 15, 0], [1 << 15, 0]]])
def test_shares_that_no_run_has_are_none(tmp_path: Path, shares: Any) -> None:
    path = tmp_path / "run.jsonl"
    lines = written(PIPELINES["buffer"], path)
    lines[0]["shares"] = shares
    reseal(path, lines)
    assert "a log of format 4" in str(seen(PIPELINES["buffer"], path))


def test_what_was_cut_off_is_said_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(PIPELINES["buffer"], path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert f"note: {path}: " in str(seen(PIPELINES["buffer"], path))


def test_commands_name_the_line_that_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, program = tmp_path / "run.jsonl", tmp_path / "pipe_of_a_damaged_log.py"
    program.write_text("import asyncdata as ad\nds = ad.Dataset.range(400).shuffle(20, seed=1).batch(8)\n")
    lines = written(PIPELINES["buffer"], path)
    lines[3]["of"] = {"packed": 88, "columns": []}
    reseal(path, lines)
    where = f"{path}: line 4 does not say which records there were"
    assert main(["replay", str(path), f"{program}:ds", "--step", "0"]) == 1
    assert where in capsys.readouterr().err
    assert main(["trace-record", "range(400):0", f"{program}:ds", str(path)]) == 1
    assert "of 11 steps it is not known" in capsys.readouterr().out
