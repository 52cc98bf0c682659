"""Items of a declared type: checked at the door, typed on the way out; and what a channel refuses to take for items."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.web import ingest_app

pytestmark = pytest.mark.web

httpx = pytest.importorskip("httpx")
attrs = pytest.importorskip("attrs")
msgspec = pytest.importorskip("msgspec")
pydantic = pytest.importorskip("pydantic")

NDJSON = {"Content-Type": "application/x-ndjson"}


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    x: float


class Struct(msgspec.Struct):  # type: ignore[misc,name-defined]
    x: float


@dataclass
class Data:
    x: float


@pydantic.dataclasses.dataclass
class Validated:
    x: float


class Typed(TypedDict):
    x: float


class Named(NamedTuple):
    x: float


@attrs.define
class Attrs:
    x: float


SCHEMAS = (Model, Struct, Data, Validated, Typed, Attrs)


def post(app: Any, content: bytes, kind: str = "application/x-ndjson") -> Any:
    async def ask() -> Any:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/ingest", content=content, headers={"Content-Type": kind})

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", SCHEMAS)
def test_items_are_of_the_declared_type(kind: Any, tmp_path: Path) -> None:
    memory, stored = ad.Channel(), ad.DurableChannel(tmp_path)
    sent = (
        (b'{"x": 1}\n\n{"x": 2.5}\n', "application/x-ndjson"),
        (b'[{"x": 3}]', "application/json"),
        (b'{"x": 4}', "application/json"),
        (msgspec.msgpack.encode([{"x": 5}]), "application/msgpack"),
    )
    for channel in (memory, stored):
        app = ingest_app(channel, schema=kind)
        assert [post(app, *one).status_code for one in sent] == [200] * 4
        channel.close()
    expected = [kind(x=float(x)) for x in (1, 2.5, 3, 4, 5)]
    assert list(ad.Dataset.from_channel(memory)) == expected
    assert list(ad.Dataset.from_channel(tmp_path, schema=kind, follow=False)) == expected


@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_item_of_another_type_is_refused_with_its_line_and_field(kind: Any) -> None:
    channel = ad.Channel()
    app = ingest_app(channel, schema=kind)
    for body, content, line, place, why in (
        (b'{"x": 1}\n\n{"y": 1}\n', "application/x-ndjson", 3, 1, "missing"),
        (b'{"x": "one"}', "application/x-ndjson", 1, 0, None),
        (b'[{"x": 1}, {"x": 1}, {"x": []}]', "application/json", None, 2, None),
        (msgspec.msgpack.encode({"y": 1}), "application/msgpack", None, 0, "missing"),
    ):
        reply = post(app, body, content)
        told = reply.json()
        assert (reply.status_code, told["accepted"], told.get("line")) == (422, 0, line)
        assert told["detail"][0]["loc"] == ["body", place, "x"]
        assert why is None or told["detail"][0]["type"] == why
    assert post(app, b'{"x": 1', "application/json").status_code == 400
    assert post(app, b'{"x": NaN}').status_code == 400
    assert post(app, b"x", "application/octet-stream").status_code == 415
    assert channel.stats()["sent"] == 0


def test_items_that_are_there_already_fail_alone_in_their_places(tmp_path: Path) -> None:
    async def send() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            await channel.send(b'{"x": 1}\n{"y": 2}\n{"x": 3}\n', content_type="application/x-ndjson")
            await channel.send(b'[{"x": 4}, {"x": "five"}]', content_type="application/json")

    asyncio.run(send())
    items = ad.Dataset.from_channel(tmp_path, schema=Typed, follow=False)
    assert list(items.ignore_errors()) == [{"x": 1.0}, {"x": 3.0}, {"x": 4.0}]
    assert [batch["x"].tolist() for batch in items.batch(2).ignore_errors()] == [[1, 3], [4]]
    lines = ad.Dataset.from_channel(tmp_path, decode=lambda line: json.loads(line)["x"], follow=False)
    with lines.iterate() as found:
        assert next(found) == 1
        with pytest.raises(ValueError, match="'x'") as caught:
            next(found)
        assert "item 1 of the request at byte 40 of the channel" in caught.value.__notes__[0]
        assert next(found) == 3


def test_the_error_of_a_batch_names_the_place_of_the_item(tmp_path: Path) -> None:
    async def send() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            await channel.send(b'{"x": 1, "y": 2}', content_type="application/json")
            await channel.send(b'[{"x": 1, "y": 2}, {"x": 1}]', content_type="application/json")

    asyncio.run(send())
    for ds in (
        ad.Dataset.from_channel(tmp_path, follow=False),
        ad.Dataset.from_channel(tmp_path, follow=False).skip(1),
    ):
        with pytest.raises(ad.StructureError) as caught:
            list(ds.batch(3))
        assert any("item 1 of the request at byte" in note for note in caught.value.__notes__)


def test_objects_sent_to_a_channel_become_the_declared_type() -> None:
    channel = ad.Channel()
    channel.send_nowait([{"x": 1}, Data(2.0), {"y": 3}, {"x": 4}])
    channel.close()
    items = ad.Dataset.from_channel(channel, schema=Data).ignore_errors()
    assert list(items) == [Data(1.0), Data(2.0), Data(4.0)]


@pytest.mark.parametrize("what", [3, "Model", len])
def test_what_is_no_type_is_refused(what: Any, tmp_path: Path) -> None:
    with pytest.raises(ad.PlanError, match="schema="):
        ingest_app(ad.Channel(), schema=what)
    with pytest.raises(ad.PlanError, match="schema="):
        ad.Dataset.from_channel(tmp_path, schema=what)
    with pytest.raises(ad.PlanError, match="not both"):
        ad.Dataset.from_channel(tmp_path, schema=Model, decode=bytes)


async def endless() -> AsyncIterator[int]:
    yield 1


def test_one_item_is_not_taken_for_a_list_of_its_parts() -> None:
    one_item = (Model(x=1), Struct(1), Data(1), Validated(1), {"x": 1}, Named(1), Attrs(1), "ab", b"ab", 1, None)
    for value in (*one_item, np.array(1), endless()):
        channel = ad.Channel()
        with pytest.raises(ad.PlanError, match="send needs a list of items"):
            channel.send_nowait(value)
        assert channel.stats()["sent"] == 0
    items = [Model(x=1), Data(1), Named(1), {"x": 1}]
    for value, expected in (
        (items, items),
        (iter(items), items),
        ((number for number in (1, 2)), [1, 2]),
        (range(2), [0, 1]),
        ((1, 2), [1, 2]),
        (np.arange(2), [0, 1]),
    ):
        channel = ad.Channel()
        channel.send_nowait(value)
        channel.close()
        assert list(ad.Dataset.from_channel(channel)) == expected


def test_a_generator_that_fails_sends_nothing() -> None:
    def some() -> Iterator[int]:
        yield 1
        raise KeyError("two")

    channel = ad.Channel()
    with pytest.raises(KeyError):
        channel.send_nowait(some())
    assert channel.stats()["sent"] == 0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"x": 1', "application/json"),
        (b"", "application/json"),
        (b'{"x": NaN}', "application/json"),
        (b'{"x": 1}\n{"x": \n', "application/x-ndjson"),
        (b"\xc1", "application/msgpack"),
        ("[1]", "application/json"),
        ([1], "application/json"),
        (Model(x=1), "application/json"),
    ],
)
def test_a_malformed_body_is_refused_where_it_is_sent(body: Any, kind: str, tmp_path: Path) -> None:
    async def send() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            with pytest.raises(ad.PlanError, match="send"):
                await channel.send(body, content_type=kind)

    asyncio.run(send())
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == []
