"""Reading from a web server of the tests' own: what is requested, what goes wrong, and where a state goes on."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.errors import DataLossError, ResumeError
from asyncdata.storage import StorageOptions, store_for
from tests.marks import first_by_default
from tests.remote.web import Request, Web

QUICK = {"retry_config": {"max_retries": 4, "backoff": {"init_backoff": 0.001, "max_backoff": 0.01}}}


def records(path: Path, count: int, size: int = 20_000) -> tuple[bytes, list[bytes]]:
    """The bytes of a TFRecord file, and its records."""
    rng = random.Random(count)
    made = [rng.randbytes(size) for _ in range(count)]
    with ad.TFRecordWriter(path) as writer:
        for one in made:
            writer.write(one)
    return path.read_bytes(), made


def served(server: Web, tmp_path: Path, counts: list[int]) -> tuple[list[str], list[list[bytes]]]:
    """URLs of TFRecord files with so many records, and these."""
    found = [records(tmp_path / "one.tfrecord", count) for count in counts]
    return [server.put(f"{place:02}.tfrecord", content) for place, (content, _) in enumerate(found)], [
        made for _, made in found
    ]


def test_records_of_a_url(server: Web, tmp_path: Path) -> None:
    (url,), (made,) = served(server, tmp_path, [400])
    assert list(ad.TFRecordDataset(url)) == made
    assert not server.of("HEAD")
    ends = [(request.start, request.stop) for request in sorted(server.of("GET"), key=lambda one: one.start)]
    assert [start for start, _ in ends] == [0, *[stop for _, stop in ends[:-1]]]
    assert len(ends) == 4  # of 1, 2, 4 and the last MB


def test_lines_and_names_with_odd_characters(server: Web) -> None:
    server.put("a%20%C3%BC%3Fb.txt", b"one\ntwo\n")
    assert list(ad.TextLineDataset(f"{server.url}/a%20%C3%BC%3Fb.txt")) == [b"one", b"two"]


def test_an_empty_file(server: Web) -> None:
    assert list(ad.TextLineDataset(server.put("empty.txt", b""))) == []


def test_one_element_takes_little(server: Web, tmp_path: Path) -> None:
    (url,), (made,) = served(server, tmp_path, [2000])
    assert list(ad.TFRecordDataset(url).take(1)) == made[:1]
    assert sum(request.stop - request.start for request in server.requests) <= 4 << 20


def test_an_epoch_over_s3_asks_for_parts_and_nothing_else(server: Web, tmp_path: Path) -> None:
    counts = [120, 0, 1, 60, *[2] * 16]
    found = [records(tmp_path / "one.tfrecord", count) for count in counts]
    for place, (content, _) in enumerate(found):
        server.put(f"bucket/{place:02}.tfrecord", content)
    options = {"endpoint": server.url, "region": "x", "skip_signature": True}
    names = [f"s3://bucket/{place:02}.tfrecord" for place in range(len(counts))]
    with ad.TFRecordDataset(names, num_parallel_reads=4, storage_options=options).iterate() as elements:
        read = [one for one in elements if elements.state_dict()]
    assert sorted(read) == sorted(one for _, made in found for one in made)
    asked = Counter(request.path for request in server.of("GET"))
    parts = [2, 1, 1, 2, *[1] * 16]  # of 1 and 2 MB
    assert asked == {f"/bucket/{place:02}.tfrecord": count for place, count in enumerate(parts)}
    assert len(server.requests) == asked.total() + len(server.of("HEAD"))
    assert [request.path for request in server.of("HEAD")] == ["/bucket/01.tfrecord"]  # it has no first byte


@pytest.mark.parametrize("cycle", [1, 2])
def test_the_next_file_of_an_interleave_is_opened_ahead(server: Web, tmp_path: Path, cycle: int) -> None:
    urls, made = served(server, tmp_path, [300] * 4)
    names = ad.Dataset.from_tensor_slices(urls)
    ds = names.interleave(ad.TFRecordDataset, cycle_length=cycle, num_parallel_calls=cycle)
    with ds.with_options(ad.Options(ram_budget=1 << 20)).iterate() as elements:  # so that no file fits in a buffer
        found = [next(elements)]
        assert server.asked_for(f"{cycle:02}.tfrecord")
        found += islice(elements, 200)
        assert {request.path for request in server.requests} == {f"/{place:02}.tfrecord" for place in range(cycle + 1)}
        state = json.loads(json.dumps(elements.state_dict()))
    found += ds.iterate(state=state)
    assert sorted(found) == sorted(one for some in made for one in some)


def stopped(ds: ad.Dataset[Any], count: int) -> tuple[list[Any], dict[str, Any]]:
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(count)]
        return found, json.loads(json.dumps(elements.state_dict()))


@pytest.mark.parametrize("count", [0, 1, 37, 40, 90, 119])
def test_goes_on_where_it_was(server: Web, tmp_path: Path, count: int) -> None:
    urls, made = served(server, tmp_path, [40, 1, 50, 30])
    ds = ad.TFRecordDataset(urls)
    found, state = stopped(ds, count)
    assert not server.of("HEAD")
    server.requests.clear()
    assert found + list(ds.iterate(state=state)) == [one for some in made for one in some]
    assert not server.of("HEAD")
    begun = {0: 0, 1: 0, 37: 0, 40: 1, 90: 2, 119: 3}[count]
    assert {request.path for request in server.requests} <= {f"/{place:02}.tfrecord" for place in range(begun, 4)}


def test_goes_on_in_shuffled_interleaved_files(server: Web, tmp_path: Path) -> None:
    urls, made = served(server, tmp_path, [7] * 9)
    ds = ad.Dataset.from_tensor_slices(urls).shuffle(9, seed=1).interleave(ad.TFRecordDataset, cycle_length=4)
    whole = list(ds)
    assert sorted(whole) == sorted(one for some in made for one in some)
    for count in range(0, 63, 5):
        found, state = stopped(ds, count)
        assert found + list(ds.iterate(state=state)) == whole


def test_a_replaced_object_is_noticed_when_a_run_goes_on(server: Web, tmp_path: Path) -> None:
    (url,), _ = served(server, tmp_path, [40])
    _, state = stopped(ad.TFRecordDataset(url), 5)
    server.put("00.tfrecord", records(tmp_path / "b", 40)[0][::-1])
    with pytest.raises(ResumeError, match="replaced by another one"):
        list(ad.TFRecordDataset(url).iterate(state=state))
    del server.files["/00.tfrecord"]
    with pytest.raises(ResumeError, match="no longer exists"):
        list(ad.TFRecordDataset(url).iterate(state=state))


def test_a_replaced_object_is_noticed_while_it_is_read(server: Web, tmp_path: Path) -> None:
    (url,), _ = served(server, tmp_path, [400])
    content = server.files["/00.tfrecord"]

    def fault(number: int, request: Request) -> None:
        server.files["/00.tfrecord"] = content if number == 1 else content[:-1] + b"x"

    server.fault = fault
    with pytest.raises(DataLossError, match=r"00\.tfrecord: the object was replaced while it was read"):
        list(ad.TFRecordDataset(url))


@pytest.mark.parametrize("fault", [503, 429, 500, "cut", "reset"])
def test_what_passes_is_tried_again(server: Web, tmp_path: Path, fault: Any) -> None:
    (url,), (made,) = served(server, tmp_path, [400])
    server.fault = lambda number, request: fault if number % 2 else None
    assert list(ad.TFRecordDataset(url, storage_options=QUICK)) == made


def test_an_answer_that_is_always_cut_goes_on_where_it_was(server: Web, tmp_path: Path) -> None:
    (url,), (made,) = served(server, tmp_path, [60])
    server.fault = lambda number, request: "cut" if request.stop - request.start > 1 << 18 else None
    assert list(ad.TFRecordDataset(url, storage_options=QUICK)) == made


def test_what_does_not_pass_is_an_error_in_its_place(server: Web, tmp_path: Path) -> None:
    (url,), (made,) = served(server, tmp_path, [3])
    missing = f"{server.url}/missing"
    ds = ad.TFRecordDataset([url, missing, url], storage_options=QUICK)
    with pytest.raises(FileNotFoundError, match="missing"):
        list(ds)
    assert list(ds.ignore_errors()) == made * 2
    server.fault = lambda number, request: 403
    server.requests.clear()
    with pytest.raises(PermissionError, match=r"access denied.*00\.tfrecord"):
        list(ad.TFRecordDataset(url, storage_options=QUICK))
    assert len(server.requests) == 1
    server.fault = lambda number, request: 503
    with pytest.raises(ConnectionError, match="too many requests"):
        list(ad.TFRecordDataset(url, storage_options=QUICK))


async def test_read_file(server: Web) -> None:
    large = random.Random(1).randbytes(20 << 20)
    assert await ad.read_file(server.put("large", large)) == large
    assert len(server.of("GET")) == 3
    assert await ad.read_file(server.put("empty", b"")) == b""
    with pytest.raises(FileNotFoundError):
        await ad.read_file(f"{server.url}/missing")


def test_files_of_a_list_are_read_by_map(server: Web) -> None:
    urls = [server.put(f"{number}.txt", str(number).encode()) for number in range(50)]
    read = ad.Dataset.from_tensor_slices(urls).map(ad.read_file, num_parallel_calls=8)
    assert list(read) == [str(number).encode() for number in range(50)]
    assert len(server.requests) == 50


async def test_leaving_ends_requests(server: Web, tmp_path: Path, nothing_left: None) -> None:
    (url,), (made,) = served(server, tmp_path, [400])
    options = {"client_options": {"pool_idle_timeout": "100ms"}}  # a connection without a request is kept for so long
    async with ad.TFRecordDataset(url, storage_options=options).iterate() as elements:
        assert await anext(elements) == made[0]


async def test_leaving_waits_for_no_answer(server: Web, tmp_path: Path, nothing_left: None) -> None:
    (url,), (made,) = served(server, tmp_path, [400])
    server.fault = lambda number, request: "slow" if number > 1 else None
    async with ad.TFRecordDataset(url).iterate() as elements:
        assert await anext(elements) == made[0]
        assert await asyncio.to_thread(server.asked_for, "00.tfrecord", 2)
    assert not server.slow.is_set()


@pytest.mark.slow
def test_an_answer_may_take_long_as_long_as_it_comes(server: Web, tmp_path: Path) -> None:
    """Of five seconds a busy machine may let it wait for some between two parts."""
    (url,), (made,) = served(server, tmp_path, [10])
    server.fault = lambda number, request: "trickle"  # for six seconds
    options = {"client_options": {"read_timeout": "5s"}}
    assert list(ad.TFRecordDataset(url, storage_options=options)) == made
    assert len(server.requests) == 1


FORKED = """
import os, sys, asyncdata as ad
assert list(ad.TextLineDataset(sys.argv[1])) == [b"x"]
pid = os.fork()
if pid == 0:
    try:
        list(ad.TextLineDataset(sys.argv[1]))
    except RuntimeError as error:
        os._exit(0 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

EXITING = """
import asyncio, logging, sys, asyncdata as ad
logging.getLogger("asyncdata").setLevel(logging.ERROR)  # a busy machine may hold the loop up
async def main():
    ds = ad.Dataset.from_tensor_slices(sys.argv[1:] * 40).map(ad.read_file, num_parallel_calls=8)
    async for _ in ds.with_options(ad.Options(placement="current")).take(30):
        pass
asyncio.run(main())
"""


def program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", text, *arguments]  # which forks
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=170)


def test_a_forked_child_says_at_once_that_it_cannot_read(server: Web) -> None:
    done = program(FORKED, server.put("x", b"x\n"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [0, *[pytest.param(number, marks=pytest.mark.slow) for number in range(1, 16)]])
def test_the_interpreter_ends_in_the_middle_of_reads(server: Web, number: int) -> None:
    done = program(EXITING, server.put("a", bytes(300_000)), server.put("b", bytes(5)))
    assert (done.returncode, done.stderr) == (0, "")


def test_secrets_are_told_nowhere(server: Web, caplog: pytest.LogCaptureFixture) -> None:
    url = server.put("x", b"x\n" * 100)
    secret = "very-secret-token"
    options = {"client_options": {"default_headers": {"authorization": secret}}}
    ds = ad.TextLineDataset([url], storage_options=options).map(len)
    plain = ad.TextLineDataset([url]).map(len)
    assert ds.fingerprint() == plain.fingerprint()
    _, state = stopped(ds, 3)
    told = [repr(ds), ds.explain(), json.dumps(state), caplog.text, repr(ds.__dict__)]
    server.fault = lambda number, request: 403
    with pytest.raises(PermissionError) as caught:
        list(ds)
    assert not [one for one in [*told, str(caught.value)] if secret in one]


def test_a_web_server_cannot_be_listed(server: Web) -> None:
    with pytest.raises(ad.errors.PlanError, match="cannot be listed"):
        ad.Dataset.list_files(f"{server.url}/*")


def test_a_name_that_obstore_would_change_is_refused(server: Web) -> None:
    with pytest.raises(OSError, match="has an empty part"):
        asyncio.run(ad.read_file(f"{server.url}/a//b"))


def test_an_escaped_slash_is_refused(server: Web) -> None:
    server.put("a/b", b"another file\n")
    with pytest.raises(ad.errors.PlanError, match="has %2F"):
        ad.TextLineDataset(f"{server.url}/a%2Fb")


def test_the_password_of_an_address_is_told_nowhere(server: Web) -> None:
    url = server.put("x", b"x\n" * 10).replace("://", "://reader:secret@")
    ds = ad.TextLineDataset([url, f"{url}.missing"])
    _, state = stopped(ds, 3)
    with pytest.raises(FileNotFoundError) as caught:
        list(ds)
    told = [repr(ds), ds.explain(), json.dumps(state), str(caught.value), *caught.value.__notes__]
    assert not [one for one in told if "secret" in one]


def test_signed_addresses_are_read_and_not_told(server: Web) -> None:
    url = server.put("a/x.txt?signature=very%2Fsecret", b"one\ntwo\n")
    ds = ad.TextLineDataset([url, url])
    assert list(ds) == [b"one", b"two"] * 2
    found, state = stopped(ds, 3)
    server.put("a/x.txt?signature=another", b"one\ntwo\n")
    again = ad.TextLineDataset([f"{server.url}/a/x.txt?signature=another"] * 2)
    assert found + list(again.iterate(state=state)) == list(ds)
    server.fault = lambda number, request: 403
    with pytest.raises(PermissionError) as caught:
        list(ds)
    told = [str(caught.value), *caught.value.__notes__, ds.explain(), json.dumps(state), repr(ds)]
    assert not [one for one in told if "secret" in one]


TWO_ELEMENTS = {"a.csv": b"id,name\n1,one\n2,two\n", "a.jsonl": b'{"id":1}\n{"id":2}\n', "a.txt": b"1\n2\n"}
QUERIES = ("", "?signature=very%2Fsecret", "?a=[1]&b=*")
EACH_ONCE = [*zip(TWO_ELEMENTS, QUERIES, strict=True)]


@pytest.mark.parametrize(
    ("name", "query"),
    first_by_default([*EACH_ONCE, *(pair for pair in product(TWO_ELEMENTS, QUERIES) if pair not in EACH_ONCE)], 3),
)
def test_commands_take_a_web_address_with_a_query(
    name: str, query: str, server: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.put(f"{name}{query}", TWO_ELEMENTS[name])
    assert main(["inspect", url]) == 0
    told = capsys.readouterr()
    assert "bytes     unknown\nelements  2\n" in told.out
    assert main(["convert", url, str(tmp_path), "--to", "jsonl"]) == 0
    assert len(list(ad.JsonLinesDataset(sorted(map(str, tmp_path.glob("*.jsonl")))))) == 2
    server.fault = lambda number, request: 404
    assert main(["inspect", url]) == 2
    assert main(["convert", url, str(tmp_path / "b"), "--to", "jsonl"]) == 2
    told = capsys.readouterr()
    assert "no such object" in told.err
    assert "secret" not in told.err + told.out


def test_csv_files_at_a_web_address(server: Web) -> None:
    url = server.put("a.csv?signature=x", b"id\n1\n2\n")
    found = ad.experimental.make_csv_dataset(url, 2, num_epochs=1, shuffle=False)
    assert [batch["id"].tolist() for batch in found] == [[1, 2]]
    assert list(ad.Dataset.list_files(url)) == [url]


def test_parts_stay_small_where_the_budget_is(server: Web, tmp_path: Path) -> None:
    (url,), (made,) = served(server, tmp_path, [400])
    assert list(ad.TFRecordDataset(url).with_options(ad.Options(ram_budget=1 << 20))) == made
    assert max(request.stop - request.start for request in server.requests) == 1 << 20


@pytest.mark.slow
def test_many_parts_under_faults_are_whole(server: Web) -> None:
    content = random.Random(3).randbytes(1 << 20)
    url = server.put("x", content)
    rng, drawn = random.Random(4), Counter[Any]()

    def fault(number: int, request: Request) -> str | int | None:
        found = rng.choice([503, 429, "cut", "reset", "slow"]) if rng.random() < 0.45 else None
        drawn[found] += 1
        return found

    server.fault = fault
    spans = [(start := rng.randrange(1 << 20), start + rng.randrange(1, 100_000)) for _ in range(2_000)]
    patient = {"retry_config": {"max_retries": 20, "backoff": {"init_backoff": 0.001}}}
    store, path = store_for(url, StorageOptions({**patient, "client_options": {"read_timeout": "200ms"}}))

    async def read() -> None:
        slots = asyncio.Semaphore(32)

        async def one(start: int, stop: int) -> None:
            async with slots:
                assert bytes((await store.read_part(path, start, stop)).data) == content[start:stop]

        await asyncio.gather(*[one(*span) for span in spans])

    asyncio.run(read())
    assert len(drawn) == 6
    assert drawn.total() - drawn[None] > 1500


def test_a_server_that_gives_no_parts(server: Web, tmp_path: Path) -> None:
    server.ranges = False
    urls, made = served(server, tmp_path, [300, 5])
    ds = ad.TFRecordDataset(urls)
    assert list(ds) == [one for some in made for one in some]
    for count in (1, 299, 302):
        found, state = stopped(ds, count)
        assert found + list(ds.iterate(state=state)) == [one for some in made for one in some]
    assert asyncio.run(ad.read_file(urls[0])) == server.files["/00.tfrecord"]
    server.fault = lambda number, request: "cut"
    with pytest.raises((OSError, DataLossError), match=r"00\.tfrecord"):
        list(ds)


def test_files_whose_length_the_server_does_not_say(server: Web, tmp_path: Path) -> None:
    server.chunked, server.ranges = True, False
    urls, made = served(server, tmp_path, [40, 0, 3])
    ds = ad.TFRecordDataset(urls, num_parallel_reads=2)
    assert sorted(ds) == sorted(one for some in made for one in some)
    for count in (0, 1, 40, 42):
        found, state = stopped(ad.TFRecordDataset(urls), count)
        assert found + list(ad.TFRecordDataset(urls).iterate(state=state)) == [one for some in made for one in some]
    assert list(ad.Dataset.from_list(urls[:1]).map(ad.read_file)) == [server.files["/00.tfrecord"]]
    query = server.put("a%20b.txt?key=secret", b"one\ntwo\n")
    assert list(ad.TextLineDataset(query)) == [b"one", b"two"]
    options = {"client_options": {"default_headers": {"x-key": "1"}}}
    assert list(ad.TextLineDataset(query, storage_options=options)) == [b"one", b"two"]
    proxied = {"client_options": {"user_agent": "x"}}
    with pytest.raises(OSError, match=r"no Content-Length.*user_agent") as refused:
        list(ad.TextLineDataset(query, storage_options=proxied))
    assert "secret" not in str(refused.value)


def test_a_file_of_unknown_length_that_breaks_off_is_an_error(server: Web, tmp_path: Path) -> None:
    server.chunked, server.ranges = True, False
    (url,), (made,) = served(server, tmp_path, [40])
    server.fault = lambda number, request: "cut"
    found: list[bytes] = []
    with pytest.raises(DataLossError, match="broke off after"):
        found.extend(ad.TFRecordDataset(url))
    assert found == made[: len(found)]


@pytest.mark.timeout(25)
def test_a_reader_leaves_a_file_of_unknown_length_at_once(server: Web, tmp_path: Path) -> None:
    """Though its server has sent nothing for a while."""
    server.chunked, server.ranges = True, False
    (url,), (made,) = served(server, tmp_path, [40])
    server.fault = lambda number, request: "slow"
    with ad.TFRecordDataset(url).prefetch(2).iterate() as elements:
        assert next(elements) == made[0]


def test_a_folder_of_energon(server: Web, tmp_path: Path) -> None:
    samples = ad.Dataset.from_list([{"__key__": f"{number}", "txt": f"#{number}"} for number in range(9)])
    names = [Path(path).name for path in samples.write_webdataset(tmp_path / "a", 3)]
    for name in names:
        server.put(f"a/{name}", (tmp_path / "a" / name).read_bytes())
    split = {"split_parts": {"train": names}, "exclude": [f"{names[0]}/1"]}
    server.put("a/.nv-meta/split.json", json.dumps(split).encode())
    expected = [f"#{number}" for number in (0, *range(2, 9))]
    how: dict[str, Any] = {"split_config": "split.json", "dataset_config": None}
    assert [sample["txt"] for sample in ad.EnergonDataset(f"{server.url}/a", **how)] == expected
    ds = ad.EnergonDataset(f"{server.url}/a", **how, index=True, cache_dir=tmp_path / "cache")
    assert [ds[number]["txt"] for number in range(len(ds))] == expected
    assert sorted(sample["txt"] for sample in ds.shuffle(seed=1)) == expected
