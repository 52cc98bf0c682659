"""What statistics tell of a server whose requests fail: how many were made again, and how many bytes were read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.statistics.bottleneck import Bottleneck
from asyncdata.statistics.statistics import Statistics
from asyncdata.storage import read_file
from tests.remote.test_http import records
from tests.remote.web import Request, Web

SLOWLY = {"retry_config": {"max_retries": 4, "backoff": {"init_backoff": 0.05, "max_backoff": 0.05}}}


class EachFailsOnce:
    """Every request is refused or reset once, then answered."""

    def __init__(self, fault: str | int) -> None:
        self.fault = fault
        self.seen: set[Request] = set()

    def __call__(self, _: int, request: Request) -> str | int | None:
        if request in self.seen:
            return None
        self.seen.add(request)
        return self.fault


def read_through(ds: ad.Dataset[Any]) -> tuple[int, Statistics, Bottleneck]:
    with ds.iterate() as elements:
        count = sum(1 for _ in elements)
        return count, elements.stats(), elements.bottleneck()


def one_file(url: str) -> ad.Dataset[bytes]:
    return ad.TFRecordDataset(url, storage_options=SLOWLY)


def several_files(url: str) -> ad.Dataset[bytes]:
    return ad.Dataset.from_list([url, url.replace("one", "two")]).interleave(one_file, cycle_length=2)


@pytest.mark.parametrize(("build", "step", "files"), [(one_file, "TFRecordDataset(", 1), (several_files, "inter", 2)])
@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_requests_made_again_are_told_of_the_step_that_reads(
    server: Web, tmp_path: Path, build: Callable[[str], ad.Dataset[bytes]], step: str, files: int, placement: Any
) -> None:
    content, made = records(tmp_path / "one.tfrecord", 150)  # requests of 1 and of 2 MB
    url, _ = server.put("one.tfrecord", content), server.put("two.tfrecord", content)
    server.fault = failing = EachFailsOnce(503)
    count, stats, found = read_through(build(url).with_options(ad.Options(placement=placement)))
    assert count == files * len(made)
    (reads,) = [one for one in stats.steps if one.step.startswith(step)]
    assert reads.retries == len(failing.seen) == len(server.requests) // 2 == 2 * files
    assert reads.read_bytes == files * len(content)
    assert [one.retries for one in stats.steps if one is not reads] == [0] * (len(stats.steps) - 1)
    assert (found.step, found.resource) == (reads.step, "waiting") or placement == "process", found
    if found.resource == "waiting":
        assert f"{reads.retries} of its requests failed and were repeated" in found.evidence
        assert "MB a second" in found.evidence


@pytest.mark.parametrize("fault", ["reset", 500, 429])
def test_requests_of_a_function_are_its_step_s(server: Web, fault: str | int) -> None:
    urls = [server.put(f"{place}.bin", bytes(1000)) for place in range(6)]
    server.fault = failing = EachFailsOnce(fault)

    async def fetched(url: str) -> bytes:
        return await read_file(url, storage_options=SLOWLY)

    count, stats, found = read_through(ad.Dataset.from_list(urls).map(fetched, num_parallel_calls=2))
    assert (count, stats.steps[1].retries, len(failing.seen)) == (6, 6, 6)
    assert found.step == stats.steps[1].step
    assert "6 repeated calls or requests" in found.evidence
