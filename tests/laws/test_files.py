"""What files mean by the reference is what was put into them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.files import folder
from tests.reference import DAMAGED, plain

RECORDS = [bytes([65 + number]) * (number * 7 % 40) for number in range(26)]
LINES = [b"", b"one", b"", b"four", b"x" * 200, *[b"line %d" % number for number in range(19)]]
VALUES = [{"number": number, "name": f"#{number}"} for number in range(20)]
SAMPLES = [
    {
        "__key__": f"{number:03}",
        **dict([("txt", f"#{number}"), ("cls", number), ("bin", bytes([number]) * (number * 60))][: 1 + number % 3]),
    }
    for number in range(17)
]
FIXED = [b"%03d" % number for number in range(31)]
ROWS = [(np.int32(number * number), b"name %d" % number) for number in range(25)]


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("a.records", RECORDS),
        ("b.records", []),
        ("c.records", [*RECORDS[:9], DAMAGED, *RECORDS[10:14]]),
        ("d.records", [*RECORDS[4:8], DAMAGED]),
        ("a.lines", LINES),
        ("b.lines", LINES[:7]),
        ("c.lines", []),
        ("a.jsonl", VALUES),
        ("b.jsonl", [*VALUES[:2], DAMAGED, VALUES[3]]),
        ("a.tar", SAMPLES),
        ("b.tar", []),
        ("c.tar", [*SAMPLES[:4], DAMAGED]),
        ("a.fixed", FIXED),
        ("b.fixed", []),
        ("c.fixed", [DAMAGED]),
        ("d.fixed", FIXED[20:]),
        ("a.csv", ROWS),
        ("b.csv", [*ROWS[:3], DAMAGED, ROWS[4], DAMAGED, (np.int32(7), b"none")]),
    ],
)
def test_meaning_of_a_file(name, elements):
    assert plain(tuple(folder().found[name])) == plain(tuple(elements))
