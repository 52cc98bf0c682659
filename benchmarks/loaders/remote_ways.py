"""The ways to read records from a server that benchmarks/loaders/remote.py compares, each run in a process of its own.

    python benchmarks/loaders/remote_ways.py '{"way": "asyncdata", "base": "http://127.0.0.1:8000", ...}'

Prints how many bytes the records had, and how many seconds it took, of the processors too.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import resource
import shutil
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncdata as ad
from asyncdata.formats.tfrecord import RecordParser

__all__ = ("FILES", "WAYS", "Job", "write_records")

FILES: Final = 16
RECORD: Final = 100_000
PART: Final = 8 << 20
BLOCK: Final = 2 << 20
OPTIONS: Final = {"region": "us-east-1", "skip_signature": True}


@dataclass(frozen=True)
class Job:
    """What is to be read: the first files below an address, of which there is a folder here, and how many at once."""

    way: str
    base: str
    folder: str
    at_once: int = 16
    files: int = FILES

    @property
    def names(self) -> list[str]:
        """The names of the TFRecord files."""
        return [f"{number:02}.tfrecord" for number in range(self.files)]


def payloads(records: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the records: the number of the file, of the record in it, and its bytes."""
    random = np.random.default_rng(0)
    made = [random.bytes(RECORD) for _ in range(64)]
    for file in range(FILES):
        for number in range(records):
            yield file, number, made[(number + file) % len(made)]


def write_records(folder: Path, megabytes: int, peers: Iterable[str]) -> None:
    """Write the same records for all: TFRecord, and the formats of those peers that are there."""
    records = megabytes * 1_000_000 // RECORD
    writers = {"webdataset": write_tar, "mosaicml-streaming": write_mosaic, "litdata": write_litdata}
    for write in (write_tfrecords, *(writers[peer] for peer in peers if peer in writers)):
        write(folder, records)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)  # nginx's workers are nobody


def write_tfrecords(folder: Path, records: int) -> None:
    """Write a TFRecord file for each number."""
    (folder / "records").mkdir(parents=True)
    elements = ad.Dataset.from_generator(lambda: (data for _, _, data in payloads(records)))
    for number, group in enumerate(elements.batch(records)):
        with ad.TFRecordWriter(folder / "records" / f"{number:02}.tfrecord") as writer:
            for data in group:
                writer.write(data)


def write_tar(folder: Path, records: int) -> None:
    """Write tar files of samples."""
    (folder / "tar").mkdir()
    for file, number, data in payloads(records):
        with tarfile.open(folder / "tar" / f"{file:02}.tar", "a", format=tarfile.USTAR_FORMAT) as tar:
            member = tarfile.TarInfo(f"{number:06}.bin")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def write_mosaic(folder: Path, records: int) -> None:
    """Write shards of Mosaic Streaming."""
    from streaming import MDSWriter

    with MDSWriter(out=str(folder / "mosaic"), columns={"x": "bytes"}, size_limit=records * RECORD) as writer:
        for _, _, data in payloads(records):
            writer.write({"x": data})


def write_litdata(folder: Path, records: int) -> None:
    """Write chunks of LitData."""
    from litdata.streaming.writer import BinaryWriter

    (folder / "litdata").mkdir()
    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes=records * RECORD)
    for number, (_, _, data) in enumerate(payloads(records)):
        writer[number] = data
    writer.done()
    writer.merge()


# the ways


def parsed(parser: RecordParser, data: Any) -> int:
    """Take the records out of some bytes; return how many bytes they have."""
    found = 0
    for start in range(0, len(data), BLOCK):
        parser.feed(data[start : start + BLOCK])
        while records := parser.parse(1000):
            found += sum(map(len, records))
    return found


async def raw_loop(job: Job, size: int, parse: bool) -> int:
    """Get all files in parts, so many at once; take them apart in order if that is asked for."""
    import obstore
    from obstore.store import HTTPStore

    options = {"allow_http": True, "timeout": "1h"}
    store = HTTPStore(f"{job.base}/records", client_options=options, retry_config={"max_retries": 0})
    slots = asyncio.Semaphore(job.at_once)

    async def part(name: str, start: int) -> memoryview:
        async with slots:
            span = (start, min(start + PART, size))
            result = await obstore.get_async(store, name, options={"range": span})
            return memoryview(await result.bytes_async())

    async def file(name: str) -> int:
        parser, done = RecordParser(name), 0
        starts = iter(range(0, size, PART))
        ahead = [asyncio.create_task(part(name, start)) for start in islice(starts, 1 + job.at_once // job.files)]
        while ahead:
            data = await ahead.pop(0)
            if (start := next(starts, None)) is not None:
                ahead.append(asyncio.create_task(part(name, start)))
            done += parsed(parser, data) if parse else len(data)
        return done

    return sum(await asyncio.gather(*map(file, job.names)))


def by_raw_loop(job: Job, parse: bool = False) -> int:
    """Run the raw loop."""
    import uvloop

    size = Path(job.folder, "records", job.names[0]).stat().st_size
    return uvloop.run(raw_loop(job, size, parse))


def by_fsspec(job: Job) -> int:
    """Read the files by fsspec over HTTP, each in a thread, and take them apart."""
    import fsspec

    return in_threads(job, fsspec.filesystem("http"), f"{job.base}/records")


def by_s3fs(job: Job) -> int:
    """Read the files by s3fs, each in a thread, and take them apart."""
    import s3fs

    return in_threads(job, s3fs.S3FileSystem(anon=True, endpoint_url=job.base), "records")


def in_threads(job: Job, system: Any, root: str) -> int:
    """Read files of a file system of fsspec's."""

    def file(name: str) -> int:
        parser, done = RecordParser(name), 0
        with system.open(f"{root}/{name}", "rb", block_size=PART) as opened:
            while data := opened.read(PART):
                done += parsed(parser, memoryview(data))
        return done

    with ThreadPoolExecutor(min(job.at_once, job.files)) as pool:
        return sum(pool.map(file, job.names))


def by_asyncdata(job: Job) -> int:
    """Read the files by asyncdata, all in turn, with so many requests at once at most."""
    from asyncdata.storage.registry import LIMITS
    from asyncdata.storage.request_limit import Limit

    limit = LIMITS.setdefault(job.base, Limit())
    limit.now = limit.most = job.at_once
    urls = [f"s3://records/{name}" for name in job.names]
    options = {**OPTIONS, "endpoint": job.base}
    return sum(map(len, ad.TFRecordDataset(urls, num_parallel_reads=job.files, storage_options=options)))


def by_webdataset(job: Job) -> int:
    """Read tar files by WebDataset, in workers of PyTorch's DataLoader."""
    import webdataset
    from torch.utils.data import DataLoader

    urls = [f"{job.base}/tar/{number:02}.tar" for number in range(FILES)]
    dataset = webdataset.WebDataset(urls, shardshuffle=False)
    return sum(len(sample["bin"]) for sample in DataLoader(dataset, batch_size=None, num_workers=job.at_once))


def by_mosaic(job: Job) -> int:
    """Read shards by Mosaic Streaming, which keeps them on the disk, in workers of PyTorch's DataLoader."""
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    kept = tempfile.mkdtemp(dir=job.folder)
    try:
        dataset = StreamingDataset(remote="s3://mosaic", local=kept, batch_size=1, shuffle=False)
        loader = DataLoader(dataset, batch_size=None, num_workers=min(job.at_once, 8))
        return sum(len(sample["x"]) for sample in loader)
    finally:
        shutil.rmtree(kept)


def by_litdata(job: Job) -> int:
    """Read chunks by LitData, which keeps them on the disk, in workers of its loader."""
    import litdata
    from litdata.streaming import downloader

    vars(downloader)["_OBSTORE_CLIENT_OPTIONS"]["allow_http"] = True  # it reads from https:// alone
    kept = tempfile.mkdtemp(dir=job.folder)
    try:
        options = {"endpoint_url": job.base}
        dataset = litdata.StreamingDataset("s3://litdata/", cache_dir=kept, storage_options=options)
        workers = min(job.at_once, 4)
        loader = litdata.StreamingDataLoader(dataset, batch_size=1, num_workers=workers, collate_fn=only)
        return sum(map(len, loader))
    finally:
        shutil.rmtree(kept)


def only(batch: list[Any]) -> bytes:
    """Return the one sample of a batch."""
    return bytes(batch[0])


WAYS: Final[dict[str, Callable[[Job], int]]] = {
    "raw": by_raw_loop,
    "raw + parser": lambda job: by_raw_loop(job, parse=True),
    "asyncdata": by_asyncdata,
    "fsspec": by_fsspec,
    "s3fs": by_s3fs,
    "webdataset": by_webdataset,
    "mosaicml-streaming": by_mosaic,
    "litdata": by_litdata,
}


MODULES: Final = {
    "raw": ("obstore.store", "uvloop"),
    "raw + parser": ("obstore.store", "uvloop"),
    "asyncdata": ("obstore.store", "uvloop"),
    "fsspec": ("fsspec.implementations.http",),
    "s3fs": ("s3fs",),
}
"""What is imported before the clock starts."""


def busy_seconds() -> float:
    """How long the processors have worked for this process and those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Do the job that the arguments tell."""
    warnings.simplefilter("ignore")
    job = Job(**json.loads(sys.argv[1]))
    for module in MODULES.get(job.way, ()):
        importlib.import_module(module)
    os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_DEFAULT_REGION="us-east-1")
    os.environ.update(S3_ENDPOINT_URL=job.base, AWS_ENDPOINT_URL=job.base)
    begin, busy = time.perf_counter(), busy_seconds()
    count = WAYS[job.way](job)
    seconds, busy = time.perf_counter() - begin, busy_seconds() - busy
    print(json.dumps({"bytes": count, "seconds": seconds, "busy": busy}))


if __name__ == "__main__":
    main()
