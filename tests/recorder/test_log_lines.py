"""A log has the ticket of each element, whichever lines it is in; and few bytes where the order is plain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.persistence import run_log_lines
from asyncdata.recorder.audit import leaves_of
from asyncdata.recorder.log_reader import read_logs, step_origin


def lengths(x: int) -> Any:
    return np.zeros(x % 3 + 1)


def failing(x: int) -> int:
    return x // (x % 50 - 7)


def odd(x: int) -> bool:
    return x % 2 == 1


KINDS: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "plain": lambda: ad.Dataset.range(300),
    "plain batches": lambda: ad.Dataset.range(300).batch(7),
    "shuffled": lambda: ad.Dataset.range(300).shuffle(20, seed=1),
    "shuffled batches": lambda: ad.Dataset.range(300).shuffle(20, seed=1).shard(2, 1).batch(7),
    "sizes": lambda: ad.Dataset.range(300).map(lengths).bucket_by_sequence_length(len, [2, 3], [5, 4, 3]),
    "pairs": lambda: ad.Dataset.range(9).interleave(lambda x: ad.Dataset.range(30), cycle_length=2).batch(8),
    "rows": lambda: ad.Dataset.range(90).batch(5).map(np.flip).unbatch(),
    "mixture": lambda: ad.Dataset.sample_from_datasets(
        [ad.Dataset.range(90), ad.Dataset.range(90).batch(2)], [0.5, 0.5], seed=1
    ),
    "zip": lambda: ad.Dataset.zip((ad.Dataset.range(90), ad.Dataset.range(90).shuffle(9, seed=1))),
    "failures": lambda: ad.Dataset.range(300).map(failing),
    "failures in batches": lambda: ad.Dataset.range(300).map(failing).batch(6),
    "padding": lambda: ad.Dataset.range(299).shard(2, 1, pad_remainder=True).batch(4),
    "shuffled all": lambda: ad.Dataset.range(300).shuffle(seed=1),
    "shuffled all, in turns": lambda: ad.Dataset.range(90).shuffle(seed=1).repeat(3).batch(7),
    "shares of all": lambda: ad.Dataset.range(300).take(280).shuffle(seed=1).shard(3, 1).filter(odd).batch(7),
    "in turns": lambda: ad.Dataset.range(90).shuffle(20, seed=1).repeat(3).batch(7),
    "a small buffer": lambda: ad.Dataset.range(300).shuffle(3, seed=1).skip(9),
    "a large buffer": lambda: ad.Dataset.range(300).shuffle(400, seed=1).map(failing).batch(6),
    "shuffled twice": lambda: ad.Dataset.range(300).shuffle(seed=1).shuffle(20, seed=2).batch(6),
    "shuffled failures": lambda: ad.Dataset.range(300).map(failing).shuffle(seed=1),
    "packed": lambda: ad.Dataset.range(90).map(lengths).pack_sequences(4),
}


@pytest.mark.parametrize("worth", [256, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_each_element_is_in_the_log_as_in_its_origin(
    kind: str, worth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log_lines, "MANY_TICKETS", 150)
    monkeypatch.setattr(run_log_lines, "WORTH", worth)
    origins = list[Any]()
    with KINDS[kind]().with_options(ad.Options(record=tmp_path / "run.jsonl")).iterate() as elements:
        while True:
            try:
                next(elements)
            except StopIteration:
                break
            except ZeroDivisionError:
                pass
            origins.append(elements.origin())
            if len(origins) == 33:
                elements.state_dict()
    (run,) = read_logs([*map(str, tmp_path.iterdir())]).runs
    assert [*run.steps] == [origin["step"] for origin in origins]
    for step, origin in zip(run.steps.values(), origins, strict=True):
        assert [*leaves_of(step.ticket)] == [*leaves_of(json.loads(json.dumps(origin["ticket"])))]


def test_consecutive_records_take_a_line_however_many_they_are(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    for _ in ad.Dataset.range(30_000).batch(256).with_options(ad.Options(record=log)):
        pass
    assert log.stat().st_size < 0.05 * 30_000


@pytest.mark.parametrize(
    ("build", "bytes_each"),
    [
        (lambda: ad.Dataset.range(20_000).window(8, shift=8).batch(32), 1),
        (lambda: ad.Dataset.range(20_000).batch(10).unbatch().batch(256), 4),
        (lambda: ad.Dataset.zip((ad.Dataset.range(20_000), ad.Dataset.range(20_000))).batch(256), 0.05),
    ],
)
def test_lines_that_are_alike_are_deflated_together(build: Any, bytes_each: float, tmp_path: Path) -> None:
    log, origins = tmp_path / "run.jsonl", list[Any]()
    with build().with_options(ad.Options(record=log)).iterate(epoch=0) as batches:
        for _ in batches:
            origins.append(batches.origin()["ticket"])
    assert log.stat().st_size < bytes_each * 20_000
    logs = read_logs([str(log)])
    for step in (0, len(origins) // 2, len(origins) - 1):
        assert [*leaves_of(step_origin(logs, step, 0)["ticket"])] == [*leaves_of(origins[step])]


def test_what_is_made_from_a_recorded_dataset_can_be_read_without_a_log(tmp_path: Path) -> None:
    recorded = ad.Dataset.range(4).with_options(ad.Options(record=tmp_path / "run.jsonl"))
    silent = recorded.map(str).with_options(ad.Options(record=False))
    assert list(silent) == ["0", "1", "2", "3"]
    assert not list(tmp_path.iterdir())
    with pytest.raises(ad.PlanError, match="record="):
        silent.state_before(1)
    for wrong in (True, 0, b""):
        with pytest.raises(ad.PlanError, match="False or None"):
            ad.Options(record=wrong)  # pyright: ignore[reportArgumentType]
