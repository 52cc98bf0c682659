"""What the dashboard says of a pipeline, without a server."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.observe.chart import chart
from asyncdata.observe.dashboard_page import rendered
from asyncdata.observe.history import History, Sample, View, between, load_of, pace_of, still_drawn
from asyncdata.observe.other_pages import drawn_for_trial, statistics_from, told_to_others
from asyncdata.observe.plan_flow import breakable
from asyncdata.observe.processes import Usage, Used
from asyncdata.statistics.statistics import Statistics


def fails(x: int) -> int:
    if x == 3:
        raise ValueError("<b>three</b>")
    return x


def shown(stats: Statistics, history: History | None = None, usage: Usage | None = None) -> str:
    return rendered([View(7, stats, history or History())], usage)


def test_state_bottleneck_and_errors_are_told() -> None:
    with ad.Dataset.range(6).map(fails).iterate() as numbers:
        assert 'class="pipeline not-begun"' in shown(numbers.stats())
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(numbers)
        stats = numbers.stats()
        assert stats.state == "running"
        assert stats.errors[0].startswith("ValueError: <b>three</b>; in map(fails) at test_dashboard_page.py")
        assert stats.errors[0].endswith("element 3")
        history = History()
        for second in range(4):
            history.add(float(second), replace(stats, elements=2 * second), 3 << 20)
        usage = Usage(1.5, 2, 1 << 30, 2 << 30, (Used(71, "worker process", 0.75, 5 << 20),))
        page = shown(stats, history, usage)
        assert "&lt;b&gt;three&lt;/b&gt;" in page
        assert "<b>three" not in page
        assert 'aria-label="Pace: elements a second 2; at most 2 in 1.00 s"' in page
        assert "of all processes 3 MB, in buffers" in page
        assert "worker process (71)</td><td>0.75</td><td>5 MB" in page
        assert "4 of 6, 67%, 1 s left" in page
        assert list(numbers) == [4, 5]
        assert numbers.stats().state == "ended"
    assert numbers.stats().state == "ended"


def test_errors_before_batches_are_no_more_batches_than_there_are() -> None:
    with ad.Dataset.range(6).map(fails).batch(2).iterate() as batches:
        for _ in range(4):
            with suppress(ValueError):
                next(batches)
        assert "4 with errors of 3, 100%<" in shown(batches.stats())


def test_that_many_fail_is_told_before_what_to_change() -> None:
    with ad.Dataset.range(30).map(fails).batch(30).iterate() as batches:
        with pytest.raises(ValueError, match="three"):
            next(batches)
        stats = batches.stats()
    assert "failure" not in shown(stats)  # one of thirty
    many = (stats.steps[0], stats.steps[1]._replace(failed=3), *stats.steps[2:])
    page = shown(replace(stats, steps=many))
    assert (
        '<div class="limit failure"><p><b>3 of 30 elements failed in map(fails)</b></p><p>ValueError: &lt;b&gt;' in page
    )
    assert re.findall(r'class="(limit[^"]*)"', page)[0] == "limit failure"
    page = shown(replace(stats, state="failed"))
    assert '<div class="limit failure"><p><b>it has failed</b></p><p>ValueError: &lt;b&gt;three' in page
    assert "Last errors (1 element failed)" in page


def test_steps_that_are_never_busy_have_small_cards() -> None:
    stats = ad.Dataset.range(6).map(fails).iterate().stats()
    busy = replace(stats, engine_seconds=1.0, steps=(stats.steps[0], stats.steps[1]._replace(own_seconds=0.5)))
    small, large = re.findall(r'<li class="step[^>]*>.*?</li>', shown(busy))
    assert small.startswith('<li class="step idle">')
    assert "<svg" not in small
    assert large.startswith('<li class="step">')
    assert "<svg" in large


def test_one_that_is_left_is_closed() -> None:
    with ad.Dataset.range(6).iterate() as numbers:
        next(numbers)
    assert numbers.stats().state == "closed"
    assert 'class="pipeline closed"' in shown(numbers.stats())


def test_dropped_errors_are_shown_with_their_elements() -> None:
    ds = (
        ad.Dataset.range(60)
        .map(fails)
        .ignore_errors()
        .flat_map(lambda x: ad.Dataset.range(2).map(fails).ignore_errors())
    )
    with ds.iterate() as numbers:
        assert len(list(numbers)) == 2 * 59
        stats = numbers.stats()
    assert stats.errors == ()
    (error,) = stats.dropped
    assert error.startswith("ValueError: <b>three</b>; in map(fails) at test_dashboard_page.py")
    assert error.endswith("element 3")
    assert stats.to_dict()["steps"][2]["dropped"] == [error]
    assert statistics_from(json.loads(json.dumps(stats.to_dict()))) == stats
    assert "element 3; dropped by ignore_errors()" in shown(stats)


def test_what_each_dataset_of_a_mixture_has_given_is_shown() -> None:
    parts = {"<web>": ad.Dataset.range(4).repeat(3), "code": ad.Dataset.range(3)}
    with ad.Dataset.sample_from_datasets(parts, seed=1, cost=float).iterate() as numbers:
        assert len(list(numbers)) == 15
        stats = numbers.stats()
    assert stats.source_rows == [
        ("dataset", "elements", "cost", "epoch"),
        ("<web>", "12, 80.0%", "18, 85.7%", "2"),
        ("code", "3, 20.0%", "3, 14.3%", ""),
    ]
    assert "<td>&lt;web&gt;</td><td>12, 80.0%</td>" in shown(stats)
    assert str(stats).splitlines()[-2].split() == ["<web>", "12,", "80.0%", "18,", "85.7%", "2"]
    many = ad.Dataset.sample_from_datasets([ad.Dataset.range(place) for place in range(1, 31)], seed=1)
    with many.iterate() as numbers:
        list(numbers)
        rows = numbers.stats().source_rows
    assert (rows[1], rows[-1], len(rows)) == (("29", "30, 6.5%"), ("10 others", ""), 22)
    with ad.Dataset.range(2).iterate() as numbers:
        assert numbers.stats().source_rows == []


def test_what_another_page_tells_is_no_markup_and_stops_nothing() -> None:
    stats = ad.Dataset.range(3).iterate().stats()
    step = stats.steps[0]._replace(
        step="<i>", dropped=("<i>",), tuned={"<i>": "<i>", "why": "<i>"}, where="<i>", workers=1
    )
    hostile = replace(stats, state='running"><i>', errors=("<i>",), steps=(step,))
    told = json.loads(json.dumps(told_to_others([View(1, hostile, History(), "<i>")])))
    assert "<i>" not in rendered([View(1, statistics_from(told[0]["stats"]), History(), "<i>")])
    for wrong in (
        {"elements": "9"},
        {"cardinality": None},
        {"steps": [{**told[0]["stats"]["steps"][0], "worker_seconds": "9"}]},
    ):
        with pytest.raises((TypeError, ValueError)):
            drawn_for_trial(View(1, statistics_from({**told[0]["stats"], **wrong}), History()))


def test_how_many_elements_there_are_is_told_from_where_one_resumes() -> None:
    ds = ad.Dataset.range(10).batch(2)
    with ds.iterate() as batches:
        next(batches)
        assert batches.stats().cardinality == 5
        state = batches.state_dict()
    with ds.iterate(state=state) as batches:
        assert len(list(batches)) == batches.stats().cardinality == 4
        assert "4 of 4, 100%" in shown(batches.stats())
    assert iter(ad.Dataset.range(3).repeat()).stats().cardinality == ad.INFINITE_CARDINALITY


def test_steps_that_two_read_are_shown_once_and_branches_before_their_merge() -> None:
    numbers = ad.Dataset.range(4)
    page = shown(ad.Dataset.zip(numbers, numbers.map(fails)).iterate().stats())
    assert page.count("<h4>range(4)</h4>") == 1
    assert "range(4), as above" in page
    assert page.index("<h4>map(fails)</h4>") < page.index("<h4>zip(2 datasets)</h4>")


def test_loads_and_pace_are_those_of_the_last_seconds() -> None:
    stats = replace(ad.Dataset.range(9).iterate().stats(), state="running", elements=1)
    history = History()
    for second in range(500):
        history.add(float(second), replace(stats, elements=second // 250 * 10 * second))
    assert pace_of(View(1, stats, history)) == pytest.approx(10.0)
    assert len(history.curve) == 101
    assert history.curve[-1].at - history.curve[0].at == 499
    assert (
        load_of(1, Sample(0.0, own=(0.0, 1.0), worked=(0.0, 0.0)), Sample(2.0, own=(0.0, 2.0), worked=(0.0, 0.5)))
        == 0.5
    )
    assert load_of(2, Sample(0.0), Sample(1.0)) == 0.0


def test_a_curve_has_axes_with_units() -> None:
    picture = chart("Pace", [("a second", [(-90.0, 0.0), (0.0, 1800.0)])], lambda value: f"{value:,.0f} MB")
    assert re.findall(r">([^<>]+)</text>", picture) == ["0 MB", "1,000 MB", "2,000 MB", "-2 min", "-1 min", "now"]
    assert chart("Pace", [("a second", [])], str) == ""
    ended = chart("Pace", [("a second", [(-2.0, 0.0), (0.0, 9.0)])], str, end="end")
    assert re.findall(r">([^<>]+)</text>", ended)[3:] == ["-5 s", "-2.5 s", "end"]


def test_curves_go_on_over_epochs_and_their_last_value_is_what_is_told_as_now() -> None:
    def epoch(number: int, begin: float, pace: int) -> View:
        stats = replace(ad.Dataset.range(900).batch(2).iterate().stats(), state="ended", epoch=number, elements=90)
        steps = tuple([step._replace(batched=2.0 if step.step == "batch(2)" else 1.0) for step in stats.steps])
        history = History()
        for tick in range(20):
            history.add(begin + tick / 2, replace(stats, elements=pace * tick, steps=steps))
        return View(number + 1, replace(stats, steps=steps), history)

    first, second, third = epoch(0, 0.0, 10), epoch(1, 10.0, 20), epoch(2, 700.0, 30)
    second = second._replace(stats=replace(second.stats, state="running"))
    page = rendered([first, second])
    assert 'aria-label="Pace: samples a second 80; at most 80 in 18.5 s"' in page
    assert "<dd>80.0</dd>" in page
    assert re.findall(r'id="name-.">([^<]*)<', page) == [
        "2: epoch 1, range(900) → batch(2)",
        "1: range(900) → batch(2)",
    ]
    assert "in 18.5 s" not in rendered([first, second, third])  # ten minutes later
    assert "in 18.5 s" in rendered([second], past=[first])
    assert rendered([second], past=[first]).count("<h2") == 1
    assert still_drawn([first, third, View(4, first.stats, History())], 700.0) == [third]
    other = second._replace(stats=ad.Dataset.range(9).iterate().stats())
    assert "in 18.5 s" not in rendered([first, other])


@pytest.mark.parametrize("count", [4, 40, 900])
def test_the_end_of_a_curve_is_what_is_told_as_now(count: int) -> None:
    stats = replace(ad.Dataset.range(9).iterate().stats(), state="running", elements=1)
    history = History()
    for tick in range(count):
        history.add(tick * 0.513, replace(stats, elements=tick * tick))
    before, last = history.pairs[-1]
    assert between(before, last) == pace_of(View(1, stats, history))
    assert all(one.at - 6 < earlier.at < one.at for earlier, one in history.pairs[-3:])


def test_a_pipeline_is_called_by_what_it_reads_or_merges(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    lines = ad.TextLineDataset([str(tmp_path / "a.txt")])
    named = shown(lines.map(len).batch(2).prefetch(4).iterate().stats())
    assert ">7: TextLineDataset(filenames) → map(len) → batch(2)<" in named
    mixed = ad.Dataset.sample_from_datasets({"<web>": lines, "code": lines.map(len)}, seed=1)
    with mixed.filter(bool).map(fails).batch(2).iterate() as batches:
        next(batches)
        page = shown(batches.stats())
    assert ">7: sample_from_datasets(…) → map_and_filter(…) → batch(2)</h2>" in page
    assert re.findall(r'<p class="branch">([^<]*)</p>', page) == ["&lt;web&gt;", "code"]
    with ad.Dataset.sample_from_datasets([lines, lines], seed=1).iterate() as numbers:
        next(numbers)
        assert 'class="branch"' not in shown(numbers.stats())


def test_one_element_is_no_elements() -> None:
    with ad.Dataset.range(1).map(fails).iterate() as one:
        assert list(one) == [0]
        assert re.search(r"\b1 element\b", shown(one.stats()))


def test_no_time_at_all_is_told_in_seconds() -> None:
    assert "<dd>0 s</dd>" in shown(ad.Dataset.range(3).iterate().stats())


def test_long_labels_break_between_words() -> None:
    assert breakable("map(load_image, num_parallel_calls=AUTOTUNE)").split("<wbr>") == [
        *("map(", "load_", "image, num_", "parallel_", "calls=", "AUTOTUNE)"),
    ]
    assert breakable("ImageFolderDataset(<b>)") == "Image<wbr>Folder<wbr>Dataset(&lt;b&gt;)"


def test_memory_of_buffers_is_told_if_autotune_chose_any() -> None:
    with ad.Dataset.range(60).batch(2).prefetch(3).iterate() as batches:
        next(batches)
        assert "AUTOTUNE" not in shown(batches.stats())
    with ad.Dataset.range(60).batch(2).prefetch(ad.AUTOTUNE).iterate() as batches:
        list(batches)
        assert "in AUTOTUNE&#x27;s buffers, of" in shown(batches.stats())


def test_that_little_is_sent_to_a_channel_is_no_problem_of_the_input() -> None:
    stats = ad.Dataset.from_channel(ad.Channel()).map(fails).iterate().stats()
    waits = (stats.steps[0]._replace(output_seconds=9.5), *stats.steps[1:])
    page = shown(replace(stats, steps=waits, elements=9, seconds=10.0, waiting_seconds=9.0, engine_seconds=10.0))
    assert '<div class="limit calm"><p><b>the pipeline waits for from_channel(Channel) 95% of the time' in page
    assert "who sends to it, or the connection, is the limit" in page
    assert "bottleneck" not in page


def test_the_input_is_no_problem_in_a_neutral_colour() -> None:
    with ad.Dataset.range(2).iterate() as numbers:
        assert 'class="limit calm"' in shown(numbers.stats())
        list(numbers)
        stats = replace(numbers.stats(), waiting_seconds=0.0)
    assert '<div class="limit calm"><p><b>the input is not the problem' in shown(stats)


def test_a_report_is_one_file_that_runs_nothing(tmp_path: Path) -> None:
    numbers = ad.Dataset.range(6).map(fails).ignore_errors().iterate()
    assert list(numbers) == [0, 1, 2, 4, 5]
    ad.observe.report(numbers, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    ad.observe.report(numbers.stats(), str(tmp_path / "stats.html"))
    assert "element 3; dropped by ignore_errors()" in page
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    with pytest.raises(ad.PlanError, match=r"report\(\) writes HTML.*'run.json'"):
        ad.observe.report(numbers, tmp_path / "run.json")
    with pytest.raises(ad.PlanError, match=r"report\(\) needs an iterator"):
        ad.observe.report(ad.Dataset.range(3), tmp_path / "run.html")  # type: ignore[arg-type]


def test_one_that_breaks_has_failed() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise KeyError

    def stops(x: int) -> int:
        raise SystemExit(3) if x else Broken

    numbers = ad.Dataset.range(3).map(stops).iterate()
    with pytest.raises(Broken):
        next(numbers)
    with pytest.raises(SystemExit):
        next(numbers)
    stats = numbers.stats()
    assert stats.errors[0] == "Broken"
    assert stats.errors[1].startswith("SystemExit: 3")
    assert stats.state == "failed"
    numbers.close()


@pytest.mark.parametrize("wrong", [8484, "8484", "", 1.5, ":8484", "here:port", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"Options\(dashboard=\) must be True"):
        ad.Options(dashboard=wrong)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ad.MissingDependencyError, match=r"pip install 'asyncdata\[dashboard\]'"):
        ad.observe.dashboard()


@pytest.mark.parametrize("wrong", [5, None, ad.Dataset.range(3), [1]])
def test_what_is_no_iterator_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"dashboard\(\) needs an iterator, such as iter\(dataset\)"):
        ad.observe.dashboard(wrong)


@pytest.mark.parametrize("wrong", [-1, 70_000, "8484", True])
def test_what_is_no_port_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"dashboard\(port=\) must be a number from 0 to 65535"):
        ad.observe.dashboard(port=wrong)
