"""A process that reads records without an end, and may take little more memory than it has when it begins."""

from __future__ import annotations

import json
import re
import resource
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncdata as ad
from asyncdata.formats.tfrecord import masked_crc
from asyncdata.system.checksum import with_checksum

MOST = 8 << 20
ROOM = 256 << 20
SPARSE = 64 << 30


def sparse(path: Path, begin: bytes) -> Path:
    """Make a file of 64 GB that takes no room."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(SPARSE)
    return path


def bomb(path: Path) -> Path:
    """Make a gzip file of a few megabytes that expands to gigabytes without a newline."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    first, more = [packer.compress(bytes(MOST)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    path.write_bytes(first + more * 400)
    return path


def saved(path: Path, head: bytes) -> str:
    """Save a dataset, and put a file of 64 GB in place of its elements."""
    ad.Dataset.from_list([b"one"]).save(str(path))
    shard, account = path / "00000.tfrecord", path / "dataset.json"
    sparse(shard, head)
    told = json.loads(account.read_text())
    told["shards"][0][2] = SPARSE
    account.write_text(json.dumps(with_checksum(told)))
    return str(path)


def limit_memory() -> None:
    """Let this process take as much as it has, and a little more."""
    taken = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))


def main() -> None:
    folder = Path(sys.argv[1])
    length = (SPARSE - 100).to_bytes(8, "little")
    head = length + masked_crc(length).to_bytes(4, "little")
    zeros, quote, long = sparse(folder / "zeros", b""), sparse(folder / "quote", b'"'), sparse(folder / "long", head)
    csv = ad.experimental.CsvDataset
    cases: dict[str, Callable[[], ad.Dataset[Any]]] = {
        "lines": lambda: ad.TextLineDataset(zeros, max_record_bytes=MOST),
        "csv": lambda: csv(zeros, [str], max_record_bytes=MOST),
        "quoted": lambda: csv(quote, [str], max_record_bytes=MOST),
        "records": lambda: ad.TFRecordDataset(long),
        "indexed": lambda: ad.TFRecordDataset(long, index=True),
        "header": lambda: csv(zeros, [str], header=True, max_record_bytes=MOST),
        "bomb": lambda: ad.TextLineDataset(expanding, "GZIP", max_record_bytes=MOST),
        "loaded": lambda: ad.Dataset.load(kept),
    }
    expanding, kept = bomb(folder / "bomb"), saved(folder / "saved", head)
    (folder / "warm").write_bytes(b"one\n" * 1000)
    list(ad.TextLineDataset(folder / "warm"))
    limit_memory()
    for name, make in cases.items():
        try:
            next(iter(make()))
        except ad.DataLossError as error:
            if "is longer than max_record_bytes" in str(error):
                print(name)


if __name__ == "__main__":
    main()
