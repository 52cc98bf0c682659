"""Messages of queues and streams that fail become dead letters, as they were sent."""

from __future__ import annotations

import asyncio
import json
import operator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("httpx")

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.web.kept_message import KeptMessage
from asyncdata.web.queued import Queued
from asyncdata.web.redis_stream import item_of
from tests.queues import ListQueue
from tests.web.consuming import consume, letters
from tests.web.streaming import http

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]


def changed(message: Any) -> Any:
    """Change a message, and fail."""
    message["n"] = b"changed"
    raise ValueError("it was changed")


def of_queue(*messages: Any) -> ad.Dataset[Any]:
    return ad.Dataset(Queued(ListQueue(messages, at_once=7, follow=True)))


def good(message: Any) -> Any:
    return message["n"] if message["n"] != b"bad" else changed(message)


def keep(dataset: Any, count: int, folder: Path, **how: Any) -> tuple[list[Any], Any, Any]:
    return asyncio.run(consume(dataset, count, on_error="dead-letter", dead_letters=folder, **how))


def test_a_message_is_kept_as_it_was_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dead"
    queue = of_queue({"n": b"bad"}, {"n": b"1"}, {"n": b"bad", "\udcff": b"0"}, {"n": b"2"})
    found, _, consumer = keep(queue.map(good).batch(2), 1, folder)
    assert [one.tolist() for one in found] == [[b"1", b"2"]]
    assert consumer.stats() == {"failed": 2, "dead_letters": 2}
    assert main(["channel", "dead-letters", str(folder), "from_list_queue:3"]) == 0
    told = capsys.readouterr().out
    assert "from_list_queue:3 " in told
    assert "ValueError: it was changed" in told
    assert main(["channel", "put-back", str(folder)]) == 0
    assert list(ad.Dataset.from_channel(folder, follow=False)) == [{"n": b"bad"}, {b"n": b"bad", b"\xff": b"0"}]
    assert letters(folder) == []


def test_a_message_fails_with_others_of_its_batch_and_in_worker_processes(tmp_path: Path) -> None:
    queue = of_queue({"n": b"1"}, {"m": b"2"}, {"n": b"3"}, {"n": b"4"})
    found, _, _ = keep(queue.batch(2), 1, tmp_path / "batches")
    assert found[0]["n"].tolist() == [b"3", b"4"]
    assert [letter.id for letter in letters(tmp_path / "batches")] == ["from_list_queue:1", "from_list_queue:2"]
    found, _, _ = keep(queue.map(operator.itemgetter("n"), num_parallel_calls=2, executor="process"), 3, tmp_path)
    assert found == [b"1", b"3", b"4"]
    assert [letter.id for letter in letters(tmp_path)] == ["from_list_queue:2"]


def test_another_message_in_the_same_place_has_a_letter_of_its_own(tmp_path: Path) -> None:
    for body in (b"1", b"1", b"2", b"2"):  # two streams of one name
        keep(of_queue({"m": body}, {"n": b"3"}).map(good), 1, tmp_path)
    first, second = letters(tmp_path)
    assert first.id == "from_list_queue:1"
    assert second.id.startswith("from_list_queue:1~")
    assert first.body != second.body


def test_consumers_that_share_a_folder_keep_each_message_once(tmp_path: Path) -> None:
    async def both() -> None:
        datasets = [of_queue({"m": b"1"}, {"m": b"2"}, {"n": b"3"}).map(good) for _ in range(2)]
        how = {"on_error": "dead-letter", "dead_letters": tmp_path}
        await asyncio.gather(*[consume(dataset, 1, **how) for dataset in datasets])

    asyncio.run(both())
    assert [letter.id for letter in letters(tmp_path)] == ["from_list_queue:1", "from_list_queue:2"]
    with ad.DurableChannel(tmp_path) as channel:
        assert channel.stats()["dead_letters"] == 2


def test_an_error_that_is_of_no_message_is_raised(tmp_path: Path) -> None:
    queue = ListQueue([{"n": b"%d" % number} for number in range(20)], at_once=7, follow=True)

    def train(items: Any) -> None:
        next(items)
        for offset in range(9, 15):
            queue.remove(offset)
        list(items)

    async def run() -> None:
        dataset = ad.Dataset(Queued(queue)).map(good)
        async with ad.web.Consumer(dataset, train, on_error="dead-letter", dead_letters=tmp_path) as consumer:
            while not consumer.ended:
                await asyncio.sleep(0)

    with pytest.raises(ad.DataLossError, match="removed"):
        asyncio.run(run())
    assert letters(tmp_path) == []


def test_an_entry_that_is_no_dict_is_kept_by_its_fields(tmp_path: Path) -> None:
    entry = item_of(b"7-0", [b"n", b"1", b"n", b"2"])
    found, _, _ = keep(of_queue({"n": b"1"}, entry, {"n": b"3"}), 2, tmp_path)
    assert found == [{"n": b"1"}, {"n": b"3"}]
    (letter,) = letters(tmp_path)
    assert "several fields" in letter.error
    sent = KeptMessage("", "", "msgpack", [b"n", b"1", b"n", b"2"], None).request()
    assert letter.request() == sent


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson"])
def test_what_cannot_be_decoded_is_kept(kind: str, tmp_path: Path) -> None:
    begin, end = (b"data: ", b"\n\n") if kind.startswith("text") else (b"", b"\n")

    async def answer(headers: Any, writer: asyncio.StreamWriter) -> None:
        data = b"".join(begin + body + end for body in (b'{"x": 1}', b'{"x":', b"[3]", b"4"))
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode() + data)

    def checked(item: Any) -> Any:
        if isinstance(item, list):
            raise TypeError(item)
        return item

    with http(answer) as url:
        found, _, _ = keep(ad.Dataset.from_http_stream(url).map(checked), 2, tmp_path, with_state=False)
    assert found[:2] == [{"x": 1}, 4]
    assert [letter.request() for letter in letters(tmp_path)[:2]] == [
        ("application/octet-stream", b'{"x":'),
        ("application/json", b"[[3]]"),
    ]
    assert "secret" not in json.dumps([letter.id for letter in letters(tmp_path)])
