"""Items that fail in the pipeline of a consumer: it stops, leaves them out, or stores them as dead letters."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.observe.dashboard_page import errors
from asyncdata.web import Consumer
from tests.web.consuming import consume, letters
from tests.web.killing import PROGRAMS, killed
from tests.web.programs.consuming_service import body_of
from tests.web.serving import served

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]


class Sample(TypedDict):
    x: int


async def send(path: Path, *bodies: str) -> None:
    async with ad.DurableChannel(path) as channel:
        for body in bodies:
            await channel.send(body.encode(), content_type="application/json")


def inverse(x: Any) -> float:
    return 1 / x["x"]


def test_bad_items_become_dead_letters_once_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await send(tmp_path, '[{"x": 1}, {"y": 2}, {"x": 0}, {"x": 4}]', '{"x": "5"}', '[{"x": 8}, {"x": 2}]')
        items = ad.Dataset.from_channel(tmp_path, schema=Sample).map(inverse).batch(2)
        found, _, consumer = await consume(items, 2, on_error="dead-letter")
        assert [batch.tolist() for batch in found] == [[1, 0.25], [0.125, 0.5]]
        assert consumer.stats() == {"failed": 3, "dead_letters": 3}
        twice = ad.Dataset.from_channel(tmp_path, schema=Sample, replay=2).map(inverse)
        assert len((await consume(twice, 8, on_error="dead-letter"))[0]) == 8
        for _ in range(2):  # again without a state: they fail again, and are stored already
            await consume(items, 2, on_error="dead-letter")
        with ad.DurableChannel(tmp_path) as channel:
            assert channel.stats()["dead_letters"] == 3

    asyncio.run(run())
    told = [record.getMessage().partition(", item")[0] for record in caplog.records if ", item" in record.getMessage()]
    assert {*told} == {"the consumer stored a dead letter", "the consumer left out what is a dead letter already"}
    found = letters(tmp_path)
    assert [json.loads(letter.body) for letter in found] == [[{"y": 2}], [{"x": 0}], {"x": "5"}]
    assert [letter.item for letter in found] == [1, 2, 0]
    assert found[0].offset == found[1].offset < found[2].offset
    assert [letter.error.partition(":")[0] for letter in found] == [
        "InvalidItemError",
        "ZeroDivisionError",
        "InvalidItemError",
    ]
    assert all(letter.failed_at >= letter.came_at for letter in found)


def test_a_failed_batch_stores_all_of_its_items(tmp_path: Path) -> None:
    asyncio.run(send(tmp_path, '[{"x": 1}, {"y": 2}, {"x": 3}, {"x": 4}]'))
    items = ad.Dataset.from_channel(tmp_path).batch(2)
    found, _, _ = asyncio.run(consume(items, 1, on_error="dead-letter"))
    assert found[0]["x"].tolist() == [3, 4]
    assert [json.loads(letter.body) for letter in letters(tmp_path)] == [[{"x": 1}], [{"y": 2}]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_another_on_error_resumes_from_the_same_state(shuffle: bool, tmp_path: Path) -> None:
    asyncio.run(send(tmp_path, *(json.dumps({"x": x}) for x in (1, 2, 0, 4, 5, 8, 10, 16))))
    items = ad.Dataset.from_channel(tmp_path, follow=False)
    # The bad item comes within the three of the first consumer, with this seed too.
    items = (items.shuffle(3, seed=4) if shuffle else items).map(inverse)
    with items.iterate() as plain:
        found = [next(plain)]
        state = plain.state_dict()
    rest, state, _ = asyncio.run(consume(items, 3, on_error="dead-letter", state=state))
    more, _, _ = asyncio.run(consume(items, 3, on_error="skip", state=state))
    assert sorted([*found, *rest[:3], *more]) == sorted(1 / x for x in (1, 2, 4, 5, 8, 10, 16))
    assert [json.loads(letter.body) for letter in letters(tmp_path)] == [{"x": 0}]


def test_other_batches_resume_if_they_may(tmp_path: Path) -> None:
    asyncio.run(send(tmp_path, json.dumps([{"x": x} for x in range(9)])))
    items = ad.Dataset.from_channel(tmp_path, schema=Sample)
    _, state, _ = asyncio.run(consume(items.batch(2), 1, on_error="skip"))
    with pytest.raises(ad.ResumeError):
        asyncio.run(consume(items.batch(3), 1, on_error="skip", state=state))
    found, _, _ = asyncio.run(consume(items.batch(3), 2, on_error="skip", state=state, strict=False))
    assert [batch["x"].tolist() for batch in found[:2]] == [[2, 3, 4], [5, 6, 7]]


def test_a_start_without_a_state_says_where_it_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ad.DurableChannel(tmp_path):
        items = ad.Dataset.from_channel(tmp_path)

        async def nothing() -> None:
            async with Consumer(items, lambda _: None):
                return

        asyncio.run(nothing())
    assert "oldest item" not in caplog.text
    asyncio.run(send(tmp_path, "1", "2"))
    _, state, _ = asyncio.run(consume(items, 1))
    assert f"reads {tmp_path} from its oldest item on, at byte 0 of" in caplog.text
    caplog.clear()
    asyncio.run(consume(items, 1, state=state))
    assert "oldest item" not in caplog.text


def test_items_of_a_channel_in_memory_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    channel = ad.Channel()
    channel.send_nowait([{"x": 1}, {"x": 0}, {"x": 4}])
    channel.close()
    with caplog.at_level(logging.WARNING, "asyncdata"):
        found, _, consumer = asyncio.run(memory(ad.Dataset.from_channel(channel).map(inverse), "skip"))
    assert (found, consumer.stats()) == ([1, 0.25], {"failed": 1, "dead_letters": 0})
    assert "ZeroDivisionError" in caplog.text


async def memory(dataset: Any, on_error: Any) -> tuple[list[Any], None, Consumer]:
    found: list[Any] = []
    consumer = Consumer(dataset, found.extend, on_error=on_error)
    async with consumer:
        while not consumer.ended:
            await asyncio.sleep(0)
    return found, None, consumer


def test_where_no_dead_letters_are_kept_it_says_so(tmp_path: Path) -> None:
    with ad.DurableChannel(tmp_path):
        delivered = ad.Dataset.from_channel(tmp_path, ack="delivered")
        for dataset in (ad.Dataset.from_channel(ad.Channel()), ad.Dataset.range(3), delivered):
            with pytest.raises(ad.PlanError, match="dead-letter"):
                Consumer(dataset, list, on_error="dead-letter")
        queue, stored = ad.Dataset.from_nats("nats://x", "numbers").map(len), ad.Dataset.from_channel(tmp_path)
        wrong = [(queue, None), (queue, 3), (stored, tmp_path / "dead"), (ad.Dataset.zip((queue, delivered)), "dead")]
        for dataset, folder in wrong:
            with pytest.raises(ad.PlanError, match="dead.letter"):
                Consumer(dataset, list, on_error="dead-letter", dead_letters=folder)  # type: ignore[arg-type]
        with pytest.raises(ad.PlanError, match="dead_letters"):
            Consumer(queue, list, on_error="skip", dead_letters=tmp_path / "dead")
        with pytest.raises(ad.PlanError, match="on_error"):
            Consumer(delivered, list, on_error="ignore")  # type: ignore[arg-type]


def damaged(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_a_letter_that_was_written_in_part_is_written_again(tmp_path: Path) -> None:
    asyncio.run(send(tmp_path, '[{"x": 1}, {"x": 0}, {"y": 0}]', '{"x": 2}'))
    items = ad.Dataset.from_channel(tmp_path).map(inverse)
    asyncio.run(consume(items, 2, on_error="dead-letter"))
    file = tmp_path / "dead-letters.jsonl"
    damaged(file, lambda data: data[:-9])
    assert len(letters(tmp_path)) == 1
    asyncio.run(consume(items, 2, on_error="dead-letter"))
    assert [json.loads(letter.body) for letter in letters(tmp_path)] == [[{"x": 0}], [{"y": 0}]]


def test_a_disk_that_is_full_for_a_dead_letter_loses_no_item(small_disk: Path) -> None:
    path, ballast = small_disk / "spool", small_disk / "ballast"
    asyncio.run(send(path, '[{"x": 1}, {"x": 0}, {"x": 2}]'))
    items = ad.Dataset.from_channel(path, follow=False).map(inverse)

    async def run() -> None:
        async with Consumer(items, list, on_error="dead-letter") as consumer:
            while not consumer.ended:
                await asyncio.sleep(0)

    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    with pytest.raises(OSError, match=r"dead letter cannot be stored, so its item counts as not read.*letters.jsonl"):
        asyncio.run(run())
    ballast.unlink()
    found, _, consumer = asyncio.run(consume(items, 2, on_error="dead-letter"))
    assert (found, consumer.stats()["dead_letters"]) == ([1, 0.5], 1)
    assert [json.loads(letter.body) for letter in letters(path)] == [[{"x": 0}]]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_trains_on_each_good_item_and_keeps_each_bad_one_once(
    kills: int, tmp_path: Path
) -> None:
    spool, saved, numbers = tmp_path / "spool", tmp_path / "saved.json", range(40 + 25 * kills)
    program = [PROGRAMS / "consuming_service.py", spool, tmp_path / "notes", saved, len(numbers)]
    assert killed(*program, kills=kills, more=0) == 0
    trained = json.loads(saved.read_text())["trained"]
    assert sorted(trained) == [number for number in numbers if number % 10 not in (3, 7)]
    bad = [body_of(number) for number in numbers if number % 10 in (3, 7)]
    lines = (spool / "dead-letters.jsonl").read_bytes().splitlines()
    assert sorted(letter.body.encode() for letter in letters(spool)) == sorted(bad)
    assert len(lines) >= len(bad)


def test_dead_letters_are_put_back_through_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = tmp_path / "spool"
    asyncio.run(send(spool, '[{"x": 0}, {"y": 2}, {"x": 1}]'))
    asyncio.run(consume(ad.Dataset.from_channel(spool, schema=Sample).map(inverse), 1, on_error="dead-letter"))
    with served(ad.web.ingest_app(ad.DurableChannel(spool), schema=Sample)) as url:
        assert main(["channel", "put-back", str(spool)]) == 2
        assert "--to" in capsys.readouterr().err
        assert main(["channel", "put-back", str(spool), "--to", f"{url}/ingest"]) == 1
        told = capsys.readouterr().out
        assert "refused: 422" in told
        assert "1 of 2 items put back" in told
    assert [json.loads(letter.body) for letter in letters(spool)] == [[{"y": 2}]]
    assert list(ad.Dataset.from_channel(spool, follow=False)) == [{"x": 0}, {"y": 2}, {"x": 1}, {"x": 0}]


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_failed_items_are_in_metrics_and_on_the_dashboard(on_error: Any, tmp_path: Path) -> None:
    httpx, enough, pages = pytest.importorskip("httpx"), threading.Event(), list[str]()

    def train(items: Any) -> None:
        for _ in items:
            pages.append(errors(items.stats()))
            enough.set()

    channel = ad.DurableChannel(tmp_path)
    consumer = Consumer(ad.Dataset.from_channel(channel).map(inverse), train, on_error=on_error)
    with served(ad.web.ingest_app(channel, consumer=consumer)) as url:
        httpx.post(f"{url}/ingest", json=[{"x": 0}, {"y": 2}, {"x": 1}], timeout=60).raise_for_status()
        assert enough.wait(120)
        told = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    assert "asyncdata_consumer_failed_total 2" in told
    assert f"asyncdata_consumer_dead_letters_total {2 if on_error == 'dead-letter' else 0}" in told
    assert ("asyncdata_channel_dead_letters 2" in told) == (on_error == "dead-letter")
    assert "(2 elements failed)" in pages[0]
    assert pages[0].count(f"dropped by Consumer(on_error=&#x27;{on_error}&#x27;)") == 2
