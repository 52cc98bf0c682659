"""Shards: files of a format that a dataset is written to, one after another, each complete or absent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol

from asyncdata.errors import PlanError, ResumeError, StructureError
from asyncdata.formats.compression import compressor
from asyncdata.graph.node import check_count
from asyncdata.identity.content_hash import changed
from asyncdata.persistence.shard_formats import Encoder, ShardFormat
from asyncdata.runtime.json_text import parse_json
from asyncdata.storage import FileLock, StorageOptions, is_local, local_path, read_file, store_for
from asyncdata.storage.cached import blocking
from asyncdata.storage.sinks import Sink, check_writable, sink_for
from asyncdata.system.checksum import has_checksum, with_checksum

__all__ = ("Iterated", "ShardedWrite")

WRITE_BYTES: Final = 1 << 20
MANIFEST: Final = ".asyncdata-write.json"


class Iterated(Protocol):
    """A dataset, as this lower layer sees it."""

    def iterate(self, *, state: Mapping[str, Any] | None = None) -> Any:
        """Return an iterator, from a state on if there is one."""
        ...


ENDINGS: Final = {"GZIP": ".gz", "ZLIB": ".zz"}


@dataclass(frozen=True)
class ShardedWrite:
    """The folder and format of a write, and the number of files, or their size `shard_bytes`."""

    format: ShardFormat
    folder: str
    shards: int | None
    shard_bytes: int
    compression: str | None
    storage: StorageOptions | None = None
    progress: Callable[[int, int], object] | None = None
    contents: Sequence[str] = ()
    seeds: Sequence[Sequence[int]] = ()
    total: int = -1
    done: list[Any] = field(default_factory=list[Any])

    @classmethod
    def of(
        cls,
        form: ShardFormat,
        path: str | os.PathLike[str],
        shards: int | None,
        shard_bytes: int,
        compression: str | None,
        storage_options: Mapping[str, Any] | None,
        progress: Callable[[int, int], object] | None,
        contents_seeds_total: tuple[Sequence[str], Sequence[Sequence[int]], int],
    ) -> ShardedWrite:
        """Return the shards for the user's arguments."""
        contents, seeds, total = contents_seeds_total
        compressor(compression)  # raises where the mistake is made
        check_count(form.method, "shard_bytes", shard_bytes, 1)
        if progress is not None and not callable(progress):
            raise PlanError(f"{form.method}(progress=) must be a function of elements and shards, got {progress!r:.80}")
        if shards is not None and check_count(form.method, "shards", shards, 1) and total < 0:
            raise PlanError(
                f"{form.method}(shards={shards}) needs the number of elements, which is unknown for this dataset: "
                "leave shards out, for shards of shard_bytes=, or state the number with assert_cardinality()"
            )
        storage = StorageOptions.of(form.method, storage_options)
        folder = os.fspath(path)
        folder = local_path(folder) if is_local(folder) else folder.rstrip("/")
        check_writable(folder, storage)
        laid_out = [form.method, shards, shard_bytes if shards is None else 0, compression or "", *form.layout]
        layout = json.dumps(laid_out, separators=(",", ":"))
        own_contents = [*contents, layout]
        return cls(form, folder, shards, shard_bytes, compression, storage, progress, own_contents, seeds, total)

    def run(self, dataset: Iterated) -> list[str]:
        """Write the shards that are not there yet; return the paths of all."""
        lock = None
        if is_local(self.folder):
            os.makedirs(self.folder, exist_ok=True)
            lock = FileLock.take(Path(self.folder, MANIFEST))
            if lock is None:
                raise FileExistsError(f"{self.format.method}: {self.folder} is being written by another process")
        try:
            manifest = self.read_manifest()
            self.done.extend(manifest["shards"])
            self.check_done()
            if "memo" in manifest:
                self.format.resume(manifest["memo"])
            if not manifest["complete"]:
                self.write(dataset, manifest["state"])
        finally:
            if lock is not None:
                lock.release()
        return [self.path(place) for place in range(len(self.done))]

    def path(self, place: int) -> str:
        return f"{self.folder}/{place:05}{self.format.extension}{ENDINGS.get(self.compression or '', '')}"

    def read_manifest(self) -> dict[str, Any]:
        """Return how far it has come; `ResumeError` if that is damaged, or of something else.

        `FileExistsError` if there is a shard, but no record of it.
        """
        try:
            manifest: dict[str, Any] | None = parse_json(self.manifest_bytes())
        except FileNotFoundError:
            self.check_free()
            return {"shards": [], "state": None, "complete": False}
        except ValueError:
            manifest = None
        if type(manifest) is not dict or not has_checksum(manifest):
            raise ResumeError(f"{self.format.method}: {self.folder}/{MANIFEST} is damaged; delete the folder's files")
        seeds = dict[int, int](manifest["seeds"])
        other = changed(manifest["contents"], list(self.contents)) is not None
        if other or any(seeds.get(place, seed) != seed for place, seed in self.seeds):
            raise ResumeError(
                f"{self.format.method}: {self.folder} was written, or begun, with other steps, functions, data, "
                "seeds or shards; delete it to start again, or give another one"
            )
        return manifest

    def check_done(self) -> None:
        """Raise `ResumeError` if a file that was complete is missing, or has another size."""
        for place, (_, size) in enumerate(self.done):
            store, path = store_for(self.path(place), self.storage)
            try:
                found = store.head(path).size
            except FileNotFoundError:
                found = -1
            if found != size:
                now = "is missing" if found < 0 else f"has {found} bytes"
                raise ResumeError(
                    f"{self.format.method}: {self.path(place)} was written with {size} bytes, and now {now}; delete "
                    f"{self.folder} to write all of it again"
                )

    def manifest_bytes(self) -> bytes:
        """Return the saved progress."""
        options = None if self.storage is None else self.storage.values
        return blocking(lambda: read_file(f"{self.folder}/{MANIFEST}", storage_options=options))

    def check_free(self) -> None:
        """Raise if the first file is there already."""
        store, path = store_for(self.path(0), self.storage)
        with suppress(FileNotFoundError):
            store.head(path)
            raise FileExistsError(
                f"{self.format.method}: {self.path(0)} already exists, and this pipeline did not write it; delete "
                "it, or give another folder"
            )

    def write(self, dataset: Iterated, state: Mapping[str, Any] | None) -> None:
        if state is None:
            self.done.clear()
            self.hold(None, complete=False)  # files from now on are of this dataset
        with dataset.iterate(state=state) as elements:
            rest = iter(elements)
            while (count := self.count(len(self.done))) >= 0:
                first = [*islice(rest, min(1, count))]
                if not first and self.shards is None and self.done:
                    break
                self.done.append(self.shard(first, rest, count))
                state = None
                with suppress(ResumeError):  # a source without states: all is written again
                    state = elements.state_dict()
                self.hold(state, complete=False)
            if next(rest, rest) is not rest:
                raise PlanError(
                    f"{self.format.method}: the dataset has more elements than the {self.total} it was said to have"
                )
        self.hold(None, complete=True)

    def count(self, place: int) -> int:
        """Return how many elements a shard has at most, -1 if there is none."""
        if self.shards is None:
            return 1 << 62
        if place >= self.shards:
            return -1
        return -(-self.total * (place + 1) // self.shards) + -self.total * place // self.shards

    def shard(self, first: list[Any], rest: Iterator[Any], count: int) -> list[int]:
        """Write one shard; return of how many elements and bytes it is."""
        path = self.path(len(self.done))
        with self.sink(path) as sink:
            before = sum(elements for elements, _ in self.done)
            writer = ShardWriter(sink, self.format.encoder(before), compressor(self.compression))
            most = self.shard_bytes if self.shards is None else 1 << 62
            try:
                for element in chain(first, islice(rest, max(0, count - 1))):
                    writer.add(element)
                    if writer.taken >= most:
                        break
                writer.finish()
            except StructureError as error:
                if not hasattr(error, "__notes__"):
                    error.add_note(f"element {before + writer.count} of the dataset")
                raise
        return [writer.count, writer.written]

    @contextmanager
    def sink(self, path: str) -> Generator[Sink]:
        """Create a file that appears when this is left, and not after an error."""
        sink = sink_for(path, self.storage)
        try:
            yield sink
            sink.close()
        except OSError as error:
            error.add_note(
                f"in {self.format.method}, while {path} was written; write again: it continues with this file"
            )
            raise
        finally:
            sink.abort()

    def hold(self, state: Mapping[str, Any] | None, *, complete: bool) -> None:
        """Save how far it has come, and call the user's `progress`."""
        seeds = [list(pair) for pair in self.seeds]
        manifest = {
            "contents": self.contents,
            "seeds": seeds,
            "shards": self.done,
            "state": state,
            "complete": complete,
        }
        if self.format.memo:
            manifest["memo"] = self.format.memo
        with self.sink(f"{self.folder}/{MANIFEST}") as sink:
            sink.write(json.dumps(with_checksum(manifest)).encode())
        if self.progress is not None and self.done and not complete:
            self.progress(sum(elements for elements, _ in self.done), len(self.done))


class ShardWriter:
    """Encodes and compresses, and hands on a megabyte at a time."""

    def __init__(self, sink: Sink, encoder: Encoder, compress: Any) -> None:
        self.sink = sink
        self.encoder = encoder
        self.compress = compress
        self.gathered: list[bytes] = []
        self.waiting = 0
        self.count = self.taken = self.written = 0
        """Elements, and bytes before and after they were compressed."""

    def add(self, element: Any) -> None:
        self.gather(self.encoder.add(element))
        self.count += 1

    def gather(self, data: bytes) -> None:
        """Take some of the file's bytes."""
        self.gathered.append(data)
        self.waiting += len(data)
        self.taken += len(data)
        if self.waiting >= WRITE_BYTES:
            self.hand_on()

    def hand_on(self) -> None:
        """Write the gathered elements."""
        self.put(self.compress.feed(b"".join(self.gathered)))
        self.gathered, self.waiting = [], 0

    def put(self, data: bytes) -> None:
        self.sink.write(data)
        self.written += len(data)

    def finish(self) -> None:
        self.gather(self.encoder.finish())
        self.hand_on()
        self.put(self.compress.finish())
