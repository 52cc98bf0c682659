"""What a trace records: every step, worker and wait in its time; and that pictures and files of it can be read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.observe.timeline import Bar, merged, rows_of, timeline
from asyncdata.runtime.spans import RECORDERS


def nap(x: int) -> int:
    time.sleep(0.002)
    return x


def traced(ds: ad.Dataset[int]) -> list[Bar]:
    with ad.trace() as t:
        for _ in ds:
            with t.step():
                pass
    return t.bars()


def test_each_step_has_a_row_and_nothing_overlaps_in_a_lane() -> None:
    bars = traced(ad.Dataset.range(40).map(nap, num_parallel_calls=3).filter(lambda x: x >= 0))
    rows = {bar.row.partition("(")[0] for bar in bars}
    assert rows == {"range", "map", "filter", "wait", "train"}
    lanes: dict[tuple[str, str, int], float] = {}
    for bar in bars:
        if bar.row.startswith("range"):
            continue
        lane = bar.row, bar.kind, bar.lane
        assert bar.begin >= lanes.get(lane, 0.0) - 1e-6
        assert bar.begin <= bar.end
        lanes[lane] = bar.end
    naps = [bar for bar in bars if bar.row.startswith("map")]
    assert sum(bar.items for bar in naps) == 40
    assert sum(bar.end - bar.begin for bar in naps) >= 40 * 0.002
    assert 1 <= len({bar.lane for bar in naps}) <= 3
    assert {bar.kind for bar in naps} == {"worker"}
    assert len([bar for bar in bars if bar.row == "train"]) == 40


def test_copies_to_a_device_have_a_row() -> None:
    bars = traced(ad.Dataset.range(40).batch(4).prefetch_to_device(Accelerator()))
    copies = [bar for bar in bars if bar.kind == "device"]
    assert {bar.row.partition("(")[0] for bar in copies} == {"prefetch_to_device"}
    assert sum(bar.items for bar in copies) == 10


@pytest.mark.slow
def test_worker_processes_are_on_the_same_clock() -> None:
    bars = traced(ad.Dataset.range(40).map(nap, num_parallel_calls=2, executor="process"))
    naps = [bar for bar in bars if bar.row.startswith("map")]
    assert sum(bar.items for bar in naps) == 40
    last = max(bar.end for bar in bars if bar.row == "train")
    assert all(0 <= bar.begin < bar.end <= last + 1 for bar in naps)


def test_nothing_is_recorded_outside() -> None:
    with ad.trace() as t:
        pass
    list(ad.Dataset.range(100).batch(10))
    assert t.bars() == []
    assert RECORDERS == []


def test_only_the_last_spans_are_kept() -> None:
    with ad.trace(max_spans=5) as t:
        for number in range(20):
            with t.step(f"step {number}"):
                pass
    assert [bar.row for bar in t.bars()] == [f"step {number}" for number in range(15, 20)]


def test_a_trace_records_once() -> None:
    t = ad.trace()
    with t:
        pass
    with pytest.raises(ad.PlanError, match="records once"), t:
        pass


def test_a_step_that_raises_is_recorded_all_the_same() -> None:
    with ad.trace() as t, pytest.raises(ValueError, match="lost"), t.step():
        raise ValueError("lost")
    assert [bar.row for bar in t.bars()] == ["train"]


def test_perfetto_reads_the_file(tmp_path: Path) -> None:
    with ad.trace() as t:
        list(ad.Dataset.range(40).map(nap, num_parallel_calls=2).batch(4))
    t.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {event["name"] for event in events if event["ph"] == "X"} == names
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")


def test_two_traces_are_drawn_above_each_other(tmp_path: Path) -> None:
    ds = ad.Dataset.range(20)
    with ad.trace() as naive:
        list(ds.map(nap))
    with ad.trace() as optimised:
        list(ds.map(nap, num_parallel_calls=4))
    optimised.plot(tmp_path / "both.svg", above=naive, title="<optimised>")
    picture = ElementTree.parse(tmp_path / "both.svg").getroot()
    words = [text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("<optimised>: ") for text in words)
    assert {"map(nap)", "worker", "pipeline's thread", "consumer waits"} <= set(words)


def test_rows_come_in_the_order_that_is_asked_for_and_others_as_they_began() -> None:
    bars = [Bar(row, "engine", 0, begin, begin + 1, 1) for begin, row in enumerate(("new", "batch", "map", "range"))]
    waits = Bar("wait", "wait", 0, 9.0, 10.0, 1)
    assert rows_of([waits, *bars], ("range", "map", "batch")) == ["wait", "range", "map", "batch", "new"]
    assert rows_of([waits, *bars]) == ["wait", "new", "batch", "map", "range"]


def test_bars_that_are_as_good_as_one_are_drawn_as_one() -> None:
    bars = [Bar("row", "engine", 0, number / 1000, number / 1000 + 0.0009, 1) for number in range(1000)]
    assert merged(bars, 0.0005) == [(0.0, pytest.approx(0.9999))]
    assert timeline([("", bars, 1.0)]).count("<rect") < 6


def test_a_name_of_another_kind_of_picture_is_refused(tmp_path: Path) -> None:
    with ad.trace() as trace:
        pass
    for drawn in (trace, ad.Dataset.range(3).explain()):
        with pytest.raises(ad.PlanError, match=r"plot\(\) writes SVG.*got 'timeline.png'"):
            drawn.plot(tmp_path / "timeline.png")
    assert not [*tmp_path.iterdir()]


def test_an_empty_trace_is_a_picture_too() -> None:
    picture = ElementTree.fromstring(timeline([("nothing", [], 0.0)]))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert any(text.text == "nothing ran" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
