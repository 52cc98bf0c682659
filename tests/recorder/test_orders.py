"""What is shuffled in an order that can be computed again takes hardly any room in a log, and hides no fault there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.persistence import run_log_files, run_log_lines
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import Audit, audit
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs
from asyncdata.runtime.orders import MOST_PLACES
from asyncdata.transforms.shuffle import BufferOrder
from tests.marks import first_by_default
from tests.recorder.rewriting import reseal

FILES, COUNT = 8, 10_000


def files(folder: Path) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(names(folder), index=True).map(len)


def in_turn(folder: Path, calls: int | None) -> ad.Dataset[Any]:
    return names(folder).interleave(ad.TFRecordDataset, cycle_length=5, num_parallel_calls=calls).map(len)


def names(folder: Path) -> ad.Dataset[str]:
    for number in range(FILES):
        with ad.TFRecordWriter(str(folder / f"{number}.tfrecord")) as writer:
            for record in range(COUNT + number):
                writer.write(b"%d" % record)
    return ad.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)


KINDS: dict[str, tuple[Callable[[Path], ad.Dataset[Any]], int]] = {
    "files in turn": (lambda folder: in_turn(folder, 2), 1),
    "everything": (lambda _: ad.Dataset.range(100_000).shuffle(seed=1), 2),
    "a buffer": (lambda _: ad.Dataset.range(100_000).shuffle(1000, seed=1), 2),
    "turns": (lambda _: ad.Dataset.range(50_000).shuffle(seed=1).repeat(2), 1),
    "files": (lambda folder: files(folder).shuffle(seed=1), 2),
    "turns of a buffer": (lambda _: ad.Dataset.range(100_000).shuffle(5000, seed=1).repeat(2), 1),
    "a share of each": (lambda _: ad.Dataset.range(100_000).take(90_000).map(abs).shuffle(seed=1), 4),
    "some of the files": (lambda folder: files(folder).take(FILES * COUNT // 2).shuffle(seed=1), 1),
    "files in turn by one task": (lambda folder: in_turn(folder, None), 1),
    "files one after the other": (lambda folder: ad.TFRecordDataset(names(folder)).map(len).repeat(2), 1),
    "a filter": (lambda _: ad.Dataset.range(100_000).filter(lambda x: x % 64 > 0), 2),
    "a buffer of all": (lambda _: ad.Dataset.range(100_000).shuffle(200_000, seed=1), 1),
}


@pytest.mark.parametrize("kind", first_by_default([*KINDS], 4))
def test_a_record_takes_a_twentieth_of_a_byte(kind: str, tmp_path: Path) -> None:
    build, ranks = KINDS[kind]
    ds, records = build(tmp_path), 0
    whole = ds.shard(ranks, 0).batch(256)
    for index in range(ranks):
        share = ds.shard(ranks, index).batch(256).with_options(ad.Options(record=tmp_path / "run.jsonl"))
        state = None
        for most in (50, 10_000):  # stopped, and gone on
            with share.iterate(state=state, epoch=None if state else 0) as batches:
                for step, batch in zip(range(most), batches, strict=False):
                    records += len(batch)
                    if step % 40 == 39 and most > 50:
                        batches.state_dict()
                state = batches.state_dict()
    paths = [*tmp_path.glob("*.jsonl")]
    logs = read_logs([*map(str, paths)])
    (found,) = audit(logs, ExpectedTickets(whole.plan, whole.options()))
    assert found.complete, str(found)
    assert found.records == records
    assert sum(path.stat().st_size for path in paths) < 0.05 * records


def pipeline(ranks: int = 1, index: int = 0) -> ad.Dataset[Any]:
    return ad.Dataset.range(1000).shuffle(seed=1).shard(ranks, index).batch(8)


def logged(path: Path, worth: int = 1, every: int = 25) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log_lines, "WORTH", worth)
        read(path, every)


def read(path: Path, every: int) -> None:
    with pipeline().with_options(ad.Options(record=path)).iterate(epoch=0) as batches:
        for step, _ in enumerate(batches, 1):
            if step % every == 0:
                batches.state_dict()


def seen(path: Path, against: bool = False) -> Audit:
    ds = pipeline()
    (found,) = audit(read_logs([str(path)]), ExpectedTickets(ds.plan, ds.options()) if against else None)
    return found


def moved(lines: list[Any]) -> None:
    lines[1]["of"]["run"][0] += 8


def in_other_steps(lines: list[Any]) -> None:
    lines[1]["of"]["run"][2] = 2


def fewer(lines: list[Any]) -> None:
    lines[1]["of"]["run"][1] -= 1


def swapped(lines: list[Any]) -> None:
    lines[1]["of"], lines[2]["of"] = lines[2]["of"], lines[1]["of"]


def repeated(lines: list[Any]) -> None:
    lines[2]["of"] = lines[1]["of"]


def beyond(lines: list[Any]) -> None:
    lines[1]["of"]["run"][0] = 10**6


def before(lines: list[Any]) -> None:
    lines[1]["of"]["run"][0] = -8


def lost(lines: list[Any]) -> None:
    del lines[1]


def of_another_order(lines: list[Any]) -> None:
    lines[1]["of"]["order"] = "0123456789abcdef"


@pytest.mark.parametrize(
    ("change", "against", "words"),
    [
        (moved, False, "delivered twice"),
        (in_other_steps, False, "delivered twice"),
        (fewer, False, "which records step 25 to 49 of the one process had: {path}: line 7 is damaged"),
        (swapped, True, "did not get in step 25 to 74 what the pipeline gives"),
        (repeated, False, "delivered twice"),
        (beyond, False, "it is not known"),
        (before, False, "it is not known"),
        (lost, False, "has no step 25 to 49 in its log"),
        (of_another_order, False, "it is not known"),
    ],
)
def test_what_is_wrong_in_places_is_found(tmp_path: Path, change: Any, against: bool, words: str) -> None:
    path = tmp_path / "run.jsonl"
    logged(path)
    assert seen(path, against=True).complete
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change([line for line in lines if "steps" in line])
    if change is lost:
        lines.remove([line for line in lines if "steps" in line][1])
    reseal(path, lines)
    found = seen(path, against)
    assert not found.complete
    assert words.replace("{path}", str(path)) in str(found)


@pytest.mark.parametrize(
    "order",
    [
        {"shuffle": [1, 1000]},
        {"shuffle": [1, 0]},
        {"shuffle": [1]},
        {"shuffle": [1, 1000], "files": {"packed": 2, "columns": 400}},
        {"shuffle": [True, 1000]},
        {"buffer": [1, 0]},
        {"drained": [1, 5, 2.5]},
        {"sorted": [1, 1000]},
    ],
)
def test_an_order_that_is_none_or_another_is_never_complete(tmp_path: Path, order: Any) -> None:
    path = tmp_path / "run.jsonl"
    logged(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    name = run_log_lines.name_of_order(order)
    for place, line in enumerate(lines):
        if "order" in line:
            lines[place] = {"order": name, **order}
        elif "order" in line.get("of", {}):
            line["of"]["order"] = name
    reseal(path, lines)
    assert not seen(path, against=True).complete


def test_each_part_of_a_log_says_its_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log_files, "FULL", 500)
    logged(tmp_path / "run.jsonl")
    paths = paths_of([str(tmp_path / "run.jsonl")])
    assert len(paths) > 1
    assert audit(read_logs(paths))[0].complete
    assert all('"order"' in Path(path).read_text() for path in paths)
    assert not audit(read_logs(paths[-1:]))[0].complete


def test_a_log_of_the_format_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    logged(path, worth=1 << 20)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not any("order" in line for line in lines)
    lines[0]["log"] = 1
    reseal(path, lines)
    assert seen(path, against=True).complete


def test_after_a_change_of_ranks_the_rest_of_the_order_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_log_lines, "WORTH", 1)
    log, states = tmp_path / "run.jsonl", list[Any]()
    for index, most in enumerate([3, 0, 17]):
        with pipeline(3, index).with_options(ad.Options(record=log)).iterate(epoch=0) as batches:
            for _ in zip(range(most), batches, strict=False):
                pass
            states.append(batches.state_dict())
    for index in range(2):
        ds = pipeline(2, index).with_options(ad.Options(record=log))
        for _ in ds.iterate(state=merge_states(states)):
            pass
    (found,) = audit(read_logs([*map(str, tmp_path.glob("*.jsonl"))]))
    assert found.complete, str(found)
    assert found.records == 1000


@pytest.mark.parametrize("size", [ad.UNKNOWN_CARDINALITY, sys.maxsize])
def test_a_shuffle_of_all_elements_whose_number_is_not_known_is_read_again(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log_lines, "WORTH", 1)
    ds, path = ad.Dataset.range(60).ignore_errors().shuffle(size, 1).repeat(2), tmp_path / "run.jsonl"
    assert len(list(ds.with_options(ad.Options(record=path)).iterate(epoch=0))) == 120
    assert '"drained"' in path.read_text()
    (found,) = audit(read_logs([str(path)]))
    assert found.complete, str(found)


def test_places_far_apart_in_a_buffer_are_found_again() -> None:
    """As a filter that leaves out nearly all has them."""
    order, count = BufferOrder(7, MOST_PLACES, 10), 300_000
    found = order.tickets(np.array([5, count]))
    assert found[0] == order.tickets(np.array([5]))[0]
    assert found[1] == order.tickets(np.arange(count - 2, count + 1))[2]
    with pytest.raises(ValueError, match="2 of 1000000000000 places"):
        order.tickets(np.array([1, 10**12]))
