"""The templates in CONTRIBUTING.md work."""

from __future__ import annotations

import importlib
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

import asyncdata as ad
from asyncdata.devices import choice
from asyncdata.testing import check_resumes, check_transform
from asyncdata.web.queued import Queued

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def template(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Return a class that one of the programs on the page defines."""
    return getattr(module_of(name, folder, patch), name)


def module_of(name: str, folder: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """Return one of the programs on the page, as a module of its own each time."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [program for program in programs if re.search(rf"class {name}\b", program)]
    path = folder / f"{name.lower()}_template.py"
    path.write_text(program, encoding="utf-8")
    patch.syspath_prepend(folder)
    patch.delitem(sys.modules, path.stem, raising=False)
    return importlib.import_module(path.stem)


def test_the_template_of_a_transformation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = template("Every", tmp_path, monkeypatch)
    check_transform(lambda ds: ad.Dataset(every(ds.plan, 3)), lambda items: items[::3])
    check_resumes(lambda: ad.Dataset(every(ad.Dataset.range(20).shuffle(4, seed=1).plan, 3)).prefetch(2))


def test_the_template_of_a_step_that_holds_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = template("Neighbours", tmp_path, monkeypatch)
    check_transform(lambda ds: ad.Dataset(neighbours(ds.plan)), lambda items: list(pairwise(items)))
    check_resumes(lambda: ad.Dataset(neighbours(ad.Dataset.range(20).shuffle(4, seed=1).plan)).shuffle(3, seed=2))

    def fails(x: int) -> int:
        if x == 2:
            raise ValueError(x)
        return x

    failing = ad.Dataset(neighbours(ad.Dataset.range(5).map(fails).plan))
    assert list(failing.ignore_errors()) == [(0, 1), (1, 3), (3, 4)]
    check_resumes(lambda: failing)


def test_the_template_of_a_step_that_holds_several_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    average = template("MovingAverage", tmp_path, monkeypatch)

    def means(items: list[Any]) -> list[float]:
        return [sum(items[place : place + 3]) / 3 for place in range(len(items) - 2)]

    check_transform(lambda ds: ad.Dataset(average(ds.plan, 3)), means)
    check_resumes(lambda: ad.Dataset(average(ad.Dataset.range(20).shuffle(4, seed=1).plan, 3)).shuffle(3, seed=2))


def test_the_template_of_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squares = template("Squares", tmp_path, monkeypatch)
    assert list(ad.Dataset(squares(4))) == [0, 1, 4, 9]
    check_resumes(lambda: ad.Dataset(squares(20)).shuffle(seed=1).batch(3))


class Client:
    """A client of a ledger. The first one of a test loses its connection after two entries."""

    def __init__(self, entries: dict[int, str], breaks: bool) -> None:
        self.entries = entries
        self.breaks = breaks

    async def read(self, first: int, most: int) -> list[tuple[int, str]]:
        if self.breaks and first > 2:
            raise ConnectionError("the service was started again")
        return [(number, entry) for number, entry in self.entries.items() if number >= first][: min(most, 2)]

    async def close(self) -> None:
        self.entries = {}


def test_the_template_of_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = template("Ledger", tmp_path, monkeypatch)
    entries = {number: f"entry {number}" for number in range(1, 7)}
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client(entries, breaks=not clients))
        return clients[-1]

    def build() -> ad.Dataset[str]:
        return ad.Dataset(Queued(ledger("numbers", connect, follow=False)))

    assert list(build()) == [*entries.values()]
    check_resumes(build)
    del entries[3]
    with build().iterate() as found:
        assert [next(found), next(found)] == ["entry 1", "entry 2"]
        with pytest.raises(ad.DataLossError, match="entries 3 to 3 were removed"):
            next(found)
        assert list(found) == ["entry 4", "entry 5", "entry 6"]
    assert all(not client.entries for client in clients)  # each was closed


def test_the_template_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = template("HostDevice", tmp_path, monkeypatch)
    monkeypatch.setattr(choice, "kind_of", lambda _: "host")
    monkeypatch.setattr(choice, "made_for", lambda _: device())
    modes: tuple[Literal["fresh", "ring"], ...] = ("fresh", "ring")
    for mode in modes:
        ds = ad.Dataset.range(6).batch(2).prefetch_to_device("host", mode=mode)
        assert [batch.tolist() for batch in ds] == [[0, 1], [2, 3], [4, 5]]


def test_the_template_of_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pairs"
    path.write_bytes(b"a=1\nno pair\nb=2\n")
    pairs = ad.Dataset(template("PairFile", tmp_path, monkeypatch)(str(path)))
    assert list(pairs.ignore_errors()) == [(b"a", b"1"), (b"b", b"2")]
    check_resumes(lambda: pairs.ignore_errors())
