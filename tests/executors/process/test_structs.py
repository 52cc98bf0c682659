"""Elements whose classes cannot be sent by value, as structs of msgspec: modules are imported, others are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STRUCT = """
import msgspec

class Point(msgspec.Struct):
    x: int
    y: str = "a"
"""

MAIN = """
import asyncdata as ad
{struct}

def moved(i):
    return Point(i)

for make in (
    lambda: list(ad.Dataset.from_iterable([Point(1)]).map(lambda point: point, executor="process")),
    lambda: list(ad.Dataset.range(2).map(moved, executor="process")),
    lambda: list(ad.Dataset.from_iterable([Point(1)]).with_options(ad.Options(placement="process"))),
):
    try:
        print(make())
    except (TypeError, ad.PlanError) as error:
        print(type(error).__name__, error)
"""


def output(folder: Path, struct: str) -> list[str]:
    (folder / "structs.py").write_text(STRUCT)
    (folder / "main.py").write_text(MAIN.format(struct=struct))
    done = subprocess.run(
        [sys.executable, folder / "main.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.formats
def test_structs_of_a_module_travel(tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    points = [f"Point(x={i}, y='a')" for i in range(2)]
    assert output(tmp_path, "from structs import Point") == [
        f"[{points[1]}]",
        f"[{', '.join(points)}]",
        f"[{points[1]}]",
    ]


@pytest.mark.formats
def test_structs_of_the_main_script_are_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    for line in output(tmp_path, STRUCT):
        assert "the msgspec.Struct Point of the main script cannot be sent" in line


NAMED_ONLY = """
import asyncdata as ad

class Locked:
    import threading
    lock = threading.Lock()  # so that the class can be pickled by its name only

made = Locked()
elements = iter(ad.Dataset.from_iterable([1, made, 2]).map(lambda x: x, executor="process"))
for _ in range(3):
    try:
        print(next(elements))
    except TypeError as error:
        print("TypeError", error)
"""


@pytest.mark.timeout(60)
def test_an_element_whose_class_can_be_sent_by_its_name_alone_fails_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(NAMED_ONLY)
    done = subprocess.run(
        [sys.executable, tmp_path / "main.py"], capture_output=True, text=True, timeout=50, check=False
    )
    first, failure, last = done.stdout.splitlines()
    assert (first, last) == ("1", "2")
    assert "TypeError the element is a Locked, which cannot be sent" in failure
