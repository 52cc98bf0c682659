"""Pictures of pipelines: each step is drawn once, arrows go down, and what users write is no markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import asyncdata as ad
from asyncdata.observe.plan_picture import Box, boxes_of, places, plan_picture

SVG = "{http://www.w3.org/2000/svg}"


def steps_in(picture: str) -> list[str]:
    return [step.findtext(f"{SVG}title") or "" for step in ET.fromstring(picture).iter(f"{SVG}g")]


def test_each_step_is_drawn_with_what_was_measured() -> None:
    ds = ad.Dataset.zip(ad.Dataset.range(40), ad.Dataset.range(40)).batch(4)
    with ds.iterate() as batches:
        assert len(list(batches)) == 10
        stats = batches.stats()
    picture = plan_picture([("before", boxes_of(stats, "batch(4)"))])
    assert steps_in(picture) == [step.step for step in stats.steps]
    words = [text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")]
    assert words[0] == "before"
    assert any(word.startswith("40 elements, ") for word in words)
    assert picture.count('stroke-width="2.5"') == 1


def test_sources_stand_side_by_side_above_what_reads_them() -> None:
    boxes = [Box("a"), Box("b", inputs=(0,)), Box("c"), Box("zip", inputs=(1, 2)), Box("batch", inputs=(3,))]
    assert places(boxes) == ([0.0, 0.0, 1.0, 0.5, 0.5], [0, 1, 1, 2, 3])


def test_a_label_is_text() -> None:
    label = "map(<script>alert('1')</script>&" + "x" * 80
    picture = plan_picture([("<b>", [Box(label, ("<i>",), 0.5, "<u>"), Box("take", inputs=(0,))])])
    assert steps_in(picture) == [label, "take"]


def test_no_steps_are_a_picture_too() -> None:
    assert steps_in(plan_picture([("", [])])) == []


def test_explain_draws_the_plan_beside_what_runs(tmp_path: Path) -> None:
    ds = ad.Dataset.range(40).skip(0).batch(4)
    explanation = ds.explain()
    assert explanation.startswith("plan       range(40) → skip(0) → batch(4)\n")
    explanation.plot(tmp_path / "plan.svg")
    picture = (tmp_path / "plan.svg").read_text()
    assert steps_in(picture) == ["range(40)", "skip(0)", "batch(4)", "range(40)", "batch(4)", "prefetch(AUTOTUNE)"]
    assert "runs as, 2 rewrites<" in picture
    assert "elements" not in picture


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_explain_tells_what_was_measured_in_the_last_iteration(placement: Any) -> None:
    ds = ad.Dataset.range(40).map(abs).batch(4).with_options(ad.Options(placement=placement))
    for _ in ds:
        pass
    picture = ds.explain()._repr_svg_()
    assert ", measured" in picture
    assert picture.count(">40 elements, ") == 2
    assert picture.count(">10 elements") == 2


def test_what_ran_elsewhere_is_drawn_without() -> None:
    ds = ad.Dataset.range(40).batch(4)
    for _ in ds.with_options(ad.Options(placement="thread")):
        pass
    assert ", measured" not in ds.explain()._repr_svg_()
