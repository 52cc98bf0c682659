"""Items of plain fields are decoded to records: what comes out is the same as of other items."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.web import ingest_app
from asyncdata.web.schema import Schema
from tests.web.test_schema import post

pytestmark = pytest.mark.web

msgspec = pytest.importorskip("msgspec")
pytest.importorskip("httpx")

Positive = Annotated[int, msgspec.Meta(ge=0)]


class Typed(TypedDict):
    number: float
    count: Required[Positive]
    right: bool
    text: str
    vector: list[float]
    labels: list[int]
    missing: float | None


@dataclass
class Data:
    number: float
    count: int
    right: bool
    text: str
    vector: list[float]
    labels: list[int]
    missing: float | None


def item(number: int) -> dict[str, Any]:
    few = {"number": number / 8, "count": number, "right": number % 3 == 0, "text": f"sample {number} \xe4"}
    return {**few, "vector": [number, 0.5], "labels": [number % 10], "missing": None if number == 5 else 1.5}


def channel_of(folder: Path, bodies: list[list[Any]]) -> Path:
    """A channel on the disk with some requests."""

    async def send() -> None:
        async with ad.DurableChannel(folder) as channel:
            for items in bodies:
                body = b"\n".join(json.dumps(one).encode() for one in items)
                await channel.send(body, content_type="application/x-ndjson")

    asyncio.run(send())
    return folder


def described(value: Any) -> Any:
    """A batch or an element by its types and values."""
    if isinstance(value, Data):
        return type(value), described(vars(value))
    if isinstance(value, dict):
        return {name: described(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [described(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    return type(value), value


STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "elements": lambda ds: ds,
    "batch": lambda ds: ds.batch(4),
    "small batches": lambda ds: ds.batch(1),
    "map": lambda ds: ds.map(lambda one: one).batch(3),
    "filter": lambda ds: ds.filter(lambda one: True).batch(3),
    "shuffle": lambda ds: ds.shuffle(5, seed=1).batch(3),
    "shard": lambda ds: ds.shard(2, 1).batch(2),
    "skip": lambda ds: ds.skip(2).take(5).batch(2),
    "zip": lambda ds: ad.Dataset.zip(ds, ad.Dataset.range(10)),
    "cache": lambda ds: ds.cache(),
    "unbatch": lambda ds: ds.batch(3).unbatch(),
}
"""What may be done with columns."""


@pytest.mark.parametrize("kind", [Typed, Data])
def test_records_give_what_items_give(kind: Any, tmp_path: Path) -> None:
    assert Schema(kind).records is not None
    channel_of(tmp_path, [[*map(item, range(4))], [*map(item, range(4, 7))], [*map(item, range(7, 12))]])
    stored = ad.Dataset.from_channel(tmp_path, schema=kind, follow=False)
    items = [msgspec.convert(item(number), kind) for number in range(12)]
    for name, step in STEPS.items():
        expected = step(ad.Dataset.from_iterable(items))
        assert [*map(described, step(stored))] == [*map(described, expected)], name


@pytest.mark.parametrize("kind", [Typed, Data])
def test_a_channel_may_have_records_and_items(kind: Any) -> None:
    channel = ad.Channel()
    app = ingest_app(channel, schema=kind)
    assert post(app, b"\n".join(json.dumps(item(number)).encode() for number in range(3))).status_code == 200
    items = [msgspec.convert(item(number), kind) for number in range(5)]
    channel.send_nowait(items[3:4])
    assert post(app, json.dumps([item(4)]).encode(), "application/json").status_code == 200
    channel.close()
    assert list(ad.Dataset.from_channel(channel)) == items


def test_records_become_items_of_another_type() -> None:
    channel = ad.Channel()
    body = json.dumps([item(1), item(2)]).encode()
    assert post(ingest_app(channel, schema=Typed), body, "application/json").status_code == 200
    channel.close()
    assert list(ad.Dataset.from_channel(channel, schema=Data)) == [Data(**item(1)), Data(**item(2))]


def test_a_run_resumes_in_the_middle_of_columns(tmp_path: Path) -> None:
    channel_of(tmp_path, [[item(number) for number in range(start, start + 4)] for start in range(0, 20, 4)])
    for ds in (
        ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False).batch(3),
        ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False)
        .shuffle(6, seed=3, reshuffle_each_iteration=False)
        .batch(3),
    ):
        expected = [batch["count"].tolist() for batch in ds]
        with ds.iterate() as batches:
            next(batches)
            next(batches)
            saved = json.loads(json.dumps(batches.state_dict()))
        with ds.iterate(state=saved) as batches:
            assert [batch["count"].tolist() for batch in batches] == expected[2:]


@pytest.mark.parametrize("value", [[1.5], []])
def test_what_is_no_column_fails_as_items_do(value: Any, tmp_path: Path) -> None:
    odd = {**item(7), "vector": value}
    channel_of(tmp_path, [[item(number) for number in range(6)], [item(6), odd, item(8)]])
    stored = ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False)
    alike = ad.Dataset.from_iterable([msgspec.convert(one, Typed) for one in [*map(item, range(7)), odd, item(8)]])
    for size in (3, 6):
        assert outcomes(stored.batch(size)) == outcomes(alike.batch(size))


def outcomes(ds: ad.Dataset[Any]) -> list[Any]:
    """What a dataset gives, with the text of an error in its place."""
    found: list[Any] = []
    with ds.iterate() as batches:
        while True:
            try:
                found.append(described(next(batches)))
            except StopIteration:
                return found
            except ad.StructureError as error:
                found.append(str(error))


def test_what_a_function_changes_in_an_item_is_in_its_batch(tmp_path: Path) -> None:
    def double(one: Any) -> bool:
        one["number"] *= 2
        return one["count"] != 2

    channel_of(tmp_path, [[item(number) for number in range(6)]])
    (batch,) = ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False).filter(double).batch(8)
    assert batch["number"].tolist() == [0, 0.25, 0.75, 1, 1.25]


def test_a_bad_item_among_records_fails_alone(tmp_path: Path) -> None:
    channel_of(tmp_path, [[item(0), {"number": 1}, item(2)], [item(3)]])
    stored = ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False)
    assert [batch["count"].tolist() for batch in stored.ignore_errors().batch(2)] == [[0, 2], [3]]


@pytest.mark.parametrize("kind", [Typed, Data])
@pytest.mark.parametrize(("field", "value"), [("labels", [1 << 63]), ("count", 1 << 63), ("count", -(1 << 64))])
def test_an_integer_that_no_array_has_fails_alone_and_is_refused(
    kind: Any, field: str, value: Any, tmp_path: Path
) -> None:
    odd, most = {**item(1), field: value}, {**item(2), "count": (1 << 63) - 1, "labels": [-(1 << 63)]}
    channel_of(tmp_path, [[item(0), odd, most], [item(3)]])
    stored = ad.Dataset.from_channel(tmp_path, schema=kind, follow=False)
    counts = [vars(batch) if kind is Data else batch for batch in stored.ignore_errors().batch(3)]
    assert [batch["count"].tolist() for batch in counts] == [[0, (1 << 63) - 1, 3]]
    channel = ad.Channel()
    reply = post(ingest_app(channel, schema=kind), b"\n".join(json.dumps(one).encode() for one in (item(0), odd)))
    assert (reply.status_code, channel.stats()["items"]) == (422, 0)
    assert reply.json()["detail"][0]["loc"][:3] == ["body", 1, field]


@dataclass
class WithDefault:
    x: float
    y: float = 1.0


@dataclass
class Checked:
    x: float

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class Partial(TypedDict, total=False):
    x: float


class Nested(TypedDict):
    x: Typed


Named = TypedDict("Named", {"not a name": float})


@pytest.mark.parametrize("kind", [WithDefault, Checked, Partial, Nested, Named, dict[str, float], tuple[float, float]])
def test_other_types_have_no_records(kind: Any) -> None:
    assert Schema(kind).records is None
