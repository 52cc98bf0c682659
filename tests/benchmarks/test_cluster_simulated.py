"""What is simulated of many actors, and the pictures of it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.loaders.cluster_simulated import ROWS, costs_in, limit, simulated
from benchmarks.loaders.log_picture import Curve, drawn

SVG = "{http://www.w3.org/2000/svg}"


def test_a_few_actors_are_the_limit_themselves() -> None:
    one = simulated(1, 0.1, 0.002, 2000)
    assert one.throughput == pytest.approx(10, rel=0.05)
    assert one.processor == pytest.approx(0.02, rel=0.05)
    assert simulated(10, 0.1, 0.002, 2000).throughput > 8 * one.throughput


def test_many_actors_are_held_up_by_the_trainer() -> None:
    assert limit(0.1, 0.002) == pytest.approx(50)
    many = simulated(500, 0.1, 0.002, 5000)
    assert many.throughput == pytest.approx(1 / 0.002, rel=0.05)
    assert many.processor == pytest.approx(1, rel=0.05)


def test_costs_are_those_that_the_cluster_recorded(tmp_path: Path) -> None:
    rows = [{"name": row, "measured": number} for number, (row, _) in enumerate(ROWS.values(), 1)]
    (tmp_path / "rows.json").write_text(json.dumps({"rows": rows}))
    assert costs_in(tmp_path / "rows.json") == {"batch of 10 MB": 1e-3, "cheap element": 2e-6}


def test_each_point_is_drawn_in_its_place() -> None:
    curves = [
        Curve("ours", [(1, 1.0), (1000, 500.0)], marks=[(50, "50 actors")]),
        Curve("limit", [(1, 500.0), (1000, 500.0)], dashed=True),
    ]
    picture = ElementTree.fromstring(drawn(curves, "actors", "batches"))
    first, last = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in picture.iter(f"{SVG}circle")]
    assert first[0] < last[0]
    assert first[1] > last[1]
    words = [one.text for one in picture.iter(f"{SVG}text")]
    assert {"ours", "limit", "actors", "batches", "50 actors", "1", "1,000"} <= {*words}
    names = [float(one.attrib["y"]) for one in picture.iter(f"{SVG}text") if one.text in {"ours", "limit"}]
    assert abs(names[0] - names[1]) >= 16  # beside each other where curves end in one place
