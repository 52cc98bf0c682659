"""The picture of throughput against concurrency."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.loaders.remote_picture import Line, drawn

SVG = "{http://www.w3.org/2000/svg}"


def test_each_point_is_drawn_in_its_place() -> None:
    lines = [Line("raw", [(1, 10.0), (4, 40.0)]), Line("ours", [(1, 10.0), (4, 20.0)])]
    picture = ElementTree.fromstring(drawn(lines, "requests", "MB/s"))
    points = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in picture.iter(f"{SVG}circle")]
    assert len(points) == 4
    assert points[0] == points[2]
    assert points[1][0] == points[3][0] > points[0][0]
    assert points[1][1] < points[3][1] < points[0][1]
    assert {"raw", "ours", "requests", "MB/s", "16"} <= {one.text for one in picture.iter(f"{SVG}text")}
