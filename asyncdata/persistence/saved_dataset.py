"""Saved datasets: a folder of TFRecord files of elements and their manifest, complete or absent."""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeAlias

from asyncdata.errors import DataLossError, PlanError, ResumeError, StructureError
from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.formats.compression import compressor
from asyncdata.formats.element_codec import encode_element
from asyncdata.formats.tfrecord import frame
from asyncdata.graph.node import PHYSICAL, Node, check_count
from asyncdata.identity.content_hash import changed, contents_of
from asyncdata.persistence.record_reader import decoded, elements_at
from asyncdata.persistence.record_writer import GROUP_BYTES, framed, size_in_arrays
from asyncdata.persistence.shards import Iterated
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.tickets import Position, Ticket
from asyncdata.sources.file_names import FileNames
from asyncdata.sources.parsed_files import FileCatalog, FileId, ParsedChunk, Spot
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.storage import FileLock, open_regular, sync_folder, write_atomically
from asyncdata.system.checksum import has_checksum, with_checksum
from asyncdata.system.crc32c import crc32c
from asyncdata.transforms.flat_map import FlatMap

__all__ = ("Saved", "save")

VERSION: Final = 1

MANIFEST: Final = "dataset.json"
STATE: Final = "state.json"

SHARD_BYTES: Final = 1 << 28
"""Without a `shard_func` a file that has so many bytes is followed by the next."""

WRITE_BYTES: Final = 1 << 20

MOST: Final = 4096
"""How many elements are taken from the pipeline at once."""

GROUP: Final = 512
"""So many elements, or fewer of `GROUP_BYTES`, are written at once."""

SECONDS: Final = 5.0
"""How often it is written down how far the saving has come."""


NextBlock: TypeAlias = Callable[[Any, int], Block | None]
"""Takes at most so many elements from an iterator, `None` at the end; raises the error of a failed one."""


def save(
    dataset: Iterated,
    next_block: NextBlock,
    path: str,
    compression: str | None,
    shard_func: Callable[..., Any] | None,
    checkpoint_args: Mapping[str, Any] | None,
    contents: Sequence[str],
    seeds: Sequence[Sequence[int]],
) -> None:
    """Write all elements of a dataset to a folder, which gets its name when it is complete.

    It stores the contents and the user's seeds, which must be the same for a save to continue.
    """
    interval, compression = interval_of(checkpoint_args or {}), None if compression in {"", "AUTO"} else compression
    compressor(compression)  # raises where the mistake is made
    target = Path(path)
    if not free(target):
        raise FileExistsError(f"save: {path} is there already; delete it, or give another path")
    partial = target.with_name(f"{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock.take(partial)
    if lock is None:
        raise FileExistsError(f"save: {path} is being saved by another process")
    try:
        partial.mkdir(exist_ok=True)
        fill(dataset, next_block, ShardWriters(partial, compression, shard_func, contents, seeds, lock), interval)
        for left in (*partial.glob(f".{STATE}.*"), *partial.glob(f".{MANIFEST}.*")):
            left.unlink(missing_ok=True)  # begun by a process that was killed
        sync_folder(partial)
        with suppress(FileNotFoundError):
            target.rmdir()  # an empty folder, or none: files that came there meanwhile are an error
        partial.rename(target)
        (target / STATE).unlink(missing_ok=True)  # not before: it says which pipeline the folder belongs to
        sync_folder(target.parent)
    finally:
        lock.release()


def free(target: Path) -> bool:
    """Return whether a folder can get this name: it is free, or an empty folder that can be removed."""
    if not os.path.lexists(target):
        return True
    if not target.is_dir() or target.is_symlink() or target.is_mount() or target.samefile("."):
        return False
    return not any(target.iterdir())


def interval_of(arguments: Mapping[str, Any]) -> int | None:
    """Return after how many elements to write down how far it has come, `None` for every few seconds."""
    if unknown := sorted(arguments.keys() - {"checkpoint_interval"}):
        raise PlanError(f"save(checkpoint_args=) has no {unknown[0]!r}; it accepts checkpoint_interval")
    interval = arguments.get("checkpoint_interval")
    return None if interval is None else check_count("save", "checkpoint_interval", interval, 1)


def fill(dataset: Iterated, next_block: NextBlock, shards: ShardWriters, interval: int | None) -> None:
    """Write all elements that are not written yet, and the manifest of them."""
    try:
        with begun(dataset, shards) as elements:
            begin, left = time.monotonic(), interval or MOST
            while (block := next_block(elements, left)) is not None:
                shards.add(block)
                left -= len(block) if interval else 0
                if not left or (interval is None and time.monotonic() - begin > SECONDS):
                    shards.hold(elements.state_dict())
                    begin, left = time.monotonic(), interval or MOST
            state = None
            with suppress(ResumeError):  # a source without states has ended all the same
                state = elements.state_dict()
        shards.finish(state)
    finally:
        shards.close()


def begun(dataset: Iterated, shards: ShardWriters) -> Any:
    """Return an iterator over the elements that are not written yet."""
    state = shards.take_up()
    try:
        return dataset.iterate(state=state)
    except ResumeError as error:
        error.add_note(f"save: {shards.folder} was begun with another pipeline; delete it to start again")
        raise


class ShardWriters:
    """The files of a dataset that is being saved."""

    def __init__(
        self,
        folder: Path,
        compression: str | None,
        shard_func: Callable[..., Any] | None,
        contents: Sequence[str] = (),
        seeds: Sequence[Sequence[int]] = (),
        lock: FileLock | None = None,
    ) -> None:
        self.lock = lock
        self.folder = folder
        self.compression = compression
        self.choose = None if shard_func is None else Call("save", shard_func)
        self.contents = [*contents, contents_of(() if shard_func is None else (shard_func,))]
        self.seeds = seeds
        self.shards: dict[int, ShardWriter] = {}
        self.current = 0
        self.waiting: list[Block] = []
        self.count = self.size = 0
        self.group = 1

    def shard(self, number: int, elements: int = 0, size: int = 0, checksum: int | None = 0) -> ShardWriter:
        """Return one of the files, new or continued."""
        self.check()
        if number not in self.shards:
            self.shards[number] = ShardWriter(self.path(number), self.compression, elements, size, checksum)
        return self.shards[number]

    def check(self) -> None:
        """Raise in a forked child, which may not write."""
        if self.lock is not None:
            self.lock.check()

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05}.tfrecord"

    def take_up(self) -> dict[str, Any] | None:
        """Take up where another process stopped, and return the state of its iterator; `None` if there was none."""
        manifest = self.read_manifest()
        for left in {*self.folder.glob("*.tfrecord")} - {self.path(number) for number, _, _ in manifest["shards"]}:
            left.unlink()  # begun after the state was saved, and maybe not again
        for (number, elements, size), checksum in zip_longest(manifest["shards"], manifest.get("checksums", ())):
            self.shard(number, elements, size, checksum)
            self.current = number
        return manifest["state"]

    def read_manifest(self) -> dict[str, Any]:
        """Return the last saved progress; `ResumeError` if it is of another pipeline.

        If it is damaged, saving starts again.
        """
        try:
            manifest = shaped((self.folder / STATE).read_bytes(), int, "contents", "state")
            seeds = dict[int, int](manifest["state"]["seeds"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return {"shards": [], "state": None}
        if not has_checksum(manifest):
            return {"shards": [], "state": None}
        if manifest["compression"] != self.compression:
            raise ResumeError(
                f"save: {self.folder} was begun with compression={manifest['compression']!r}, but it is "
                f"{self.compression!r} now; delete the folder to start again"
            )
        if len(manifest["contents"]) == len(self.contents) and changed(manifest["contents"], self.contents) is not None:
            raise ResumeError(
                f"save: {self.folder} was begun with other functions or data; delete it to start again, or save with "
                "the same ones"
            )
        if any(seeds.get(place, seed) != seed for place, seed in self.seeds):
            raise ResumeError(
                f"save: {self.folder} was begun with another seed; delete it to start again, or give the same seed"
            )
        return manifest

    def add(self, block: Block) -> None:
        """Append elements; those in arrays in groups, as the first blocks of a run are small.

        The first of them is written at once, so that one which cannot be written is found out soon.
        """
        size = size_in_arrays(block)
        self.waiting.append(block)
        self.count += len(block)
        self.size += size or 0
        if size is None or self.count >= self.group or self.size >= GROUP_BYTES:
            self.write()
            self.group = min(2 * self.group, GROUP)

    def write(self) -> None:
        """Write waiting elements to the files."""
        self.check()
        waiting, self.waiting, self.count, self.size = self.waiting, [], 0, 0
        if not waiting:
            return
        try:
            if self.choose is None:
                for count, data in framed(waiting, self.group_size):
                    self.shard(self.current).add(count, data)
                return
            for element in chain.from_iterable([block.items for block in waiting]):
                self.shard(chosen(self.choose, element)).add(1, frame(encode_element(element)))
        except StructureError as error:
            error.add_note("in save")
            raise

    def group_size(self) -> int:
        """Return after how many bytes to see which shard is the next element's."""
        if self.shard(self.current).full:
            self.current += 1
        return self.shard(self.current).left

    def hold(self, state: Mapping[str, Any]) -> None:
        """Write down how far it has come, once all of that is on the disk."""
        self.sync()
        self.write_state(state, durable=True)

    def sync(self) -> None:
        """Have all elements on the disk."""
        self.write()
        for shard in self.shards.values():
            shard.sync()

    def write_state(self, state: Mapping[str, Any], *, durable: bool) -> None:
        """Write down how far it has come, and whose that is."""
        shards = [[number, shard.elements, shard.size] for number, shard in sorted(self.shards.items())]
        manifest = {"compression": self.compression, "shards": shards, "contents": self.contents, "state": state}
        manifest |= self.checksums()
        write_atomically(self.folder / STATE, json.dumps(with_checksum(manifest)).encode(), durable=durable)

    def checksums(self) -> dict[str, list[int]]:
        """Return the checksums of all files; nothing if the save was begun by a version that did not compute them."""
        found = [shard.checksum for _, shard in sorted(self.shards.items())]
        return {} if None in found else {"checksums": [one for one in found if one is not None]}

    def finish(self, state: Mapping[str, Any] | None = None) -> None:
        """Write the manifest when all shards are on the disk, next to the last state, which says whose they are.

        If the machine stops before that is on the disk, saving starts again.
        """
        self.shard(0)
        self.sync()
        if state is not None:
            self.write_state(state, durable=False)
        shards = [[shard.path.name, shard.elements, shard.size] for _, shard in sorted(self.shards.items())]
        manifest = {"version": VERSION, "compression": self.compression, "shards": shards, **self.checksums()}
        content = json.dumps(with_checksum(manifest), indent=1).encode()
        write_atomically(self.folder / MANIFEST, content, durable=True)

    def close(self) -> None:
        for shard in self.shards.values():
            shard.file.close()


def chosen(choose: Call, element: Any) -> int:
    """Return the number of the shard that the user's function chooses for an element."""
    found = choose.call_one(element)
    try:
        number = operator.index(found)
    except TypeError:
        raise TypeError(f"{choose.label} must return the number of a shard, an integer, got {found!r:.60}") from None
    if number < 0:
        raise ValueError(f"{choose.label} must return the number of a shard, from 0 on, got {number}")
    return number


def shaped(content: bytes, shard: type[int | str], *more: str) -> Any:
    """Return a file's list of shards, each of which has such a number or name.

    `ValueError` if that has not the shape it was written in, or is damaged. Earlier files have no checksum.
    """
    manifest = parse_json(content)
    try:
        if (version := manifest.get("version", VERSION)) != VERSION:
            raise ValueError(f"it has version {version!r:.80}, and this asyncdata reads version {VERSION}")
        _ = [manifest[name] for name in more]
        compressor(manifest["compression"])
        for name, elements, size in manifest["shards"]:
            if [*map(type, (name, elements, size))] != [shard, int, int] or min(elements, size) < 0:
                raise ValueError(f"not a shard (name, elements, bytes): {(name, elements, size)!r:.80}")
            if Path(str(name)).name != str(name):
                raise ValueError(f"{name!r:.80} is not a file name in this folder")
        checksums = manifest.get("checksums", [0] * len(manifest["shards"]))
        if len(checksums) != len(manifest["shards"]) or {*map(type, checksums)} - {int}:
            raise ValueError(f"not the checksums of {len(manifest['shards'])} shards: {checksums!r:.80}")
    except (KeyError, TypeError, AttributeError, PlanError) as error:
        raise ValueError(f"it lists no shards: {error!r}") from error
    if "checksum" in manifest and not has_checksum(manifest):
        raise ValueError("its checksum does not match its contents")
    return manifest


class ShardWriter:
    """One file: elements in frames, plain or as compressed streams one after another; and the checksum of the frames,
    if it is known."""

    def __init__(self, path: Path, compression: str | None, elements: int, size: int, checksum: int | None) -> None:
        self.path = path
        self.compression = compression
        self.compressor = compressor(compression)
        self.begun = False
        self.elements = elements
        self.size = size
        self.checksum = checksum
        self.look()
        self.waiting: list[bytes | bytearray | memoryview] = []
        self.waiting_bytes = 0
        self.file = FileIO(open_regular(path, os.O_RDWR | os.O_CREAT), "r+")
        if (now := self.file.seek(0, os.SEEK_END)) < size:
            self.file.close()
            raise ResumeError(f"save: {path} had {size} bytes and has {now} now; delete {path.parent} to start again")
        self.file.truncate(size)
        self.file.seek(size)

    def add(self, count: int, data: bytes | memoryview) -> None:
        """Append so many elements in their frames."""
        self.put(self.compressor.feed(data))
        self.checksum = None if self.checksum is None else crc32c(data, self.checksum)
        self.begun = True
        self.elements += count
        self.left -= len(data)
        if self.left <= 0:
            self.look()
        if self.waiting_bytes >= WRITE_BYTES:
            self.write()

    def look(self) -> None:
        """Check whether it is full, and after how many bytes, before compression, to check again.

        That is not after each block: which elements are in a file should not depend on how quickly they come.
        """
        self.full = self.size >= SHARD_BYTES
        self.left = min(GROUP_BYTES, max(1, SHARD_BYTES - self.size))

    def put(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        self.size += len(data)

    def write(self) -> None:
        """Flush the file."""
        waiting = self.waiting
        view = memoryview(waiting[0] if len(waiting) == 1 else b"".join(waiting))  # large ones are not copied
        try:
            while view:
                view = view[self.file.write(view) :]
        except OSError as error:
            error.add_note(f"in save, while {self.path} was written; free some space and save again: it continues here")
            raise
        self.waiting, self.waiting_bytes = [], 0

    def sync(self) -> None:
        """Sync it to the disk, so that another process can continue after it."""
        if self.begun:
            self.put(self.compressor.finish())
            self.compressor, self.begun = compressor(self.compression), False
        self.write()
        os.fsync(self.file.fileno())


@dataclass(frozen=True, eq=False)
class ElementFile(RecordFile):
    """The elements of one file of a saved dataset, of which there are `count`."""

    method: ClassVar[str] = "load"

    count: int = field(kw_only=True, metadata=PHYSICAL)

    @property
    def recognises(self) -> bool:
        return False  # the folder shows it

    @property
    def cardinality(self) -> int:
        return self.count

    @property
    def signature(self) -> None:
        return None

    def block(self, file: FileId, found: ParsedChunk, ordinal: int, compressed: bool = False) -> Block:
        elements = decoded(list(found.elements))
        return super().block(file, dataclasses.replace(found, elements=elements), ordinal, compressed)


@dataclass(frozen=True, eq=False)
class SavedFiles(FlatMap):
    """The elements of all files of a saved dataset, of which there are `count`, whether they are compressed or not; and
    checksums, which tell them from others that were saved there later."""

    count: int = field(kw_only=True, metadata=PHYSICAL)
    checksums: tuple[int, ...] = field(default=(), repr=False, kw_only=True)

    @property
    def cardinality(self) -> int:
        return self.count


class Saved:
    """A saved dataset: its files, and how many elements each has."""

    counted: ClassVar = ("compression",)

    def __init__(
        self,
        folder: Path,
        compression: str | None,
        shards: Mapping[str, int],
        max_record_bytes: int,
        checksums: Sequence[int] = (),
    ) -> None:
        self.folder = folder
        self.checksums = checksums
        self.compression = compression
        self.shards = shards
        self.indexes = IndexCache(max_record_bytes)

    @classmethod
    def at(cls, path: str, compression: str | None, max_record_bytes: int) -> Self:
        """Return the dataset that was saved to a folder; raise if it is missing or incomplete."""
        folder = Path(path)
        try:
            manifest = shaped((folder / MANIFEST).read_bytes(), str)
        except FileNotFoundError as error:
            begun = folder.with_name(f"{folder.name}.partial").exists()
            error.add_note(
                "load: the save did not finish; save it again: it continues where it stopped" if begun else "in load"
            )
            raise
        except ValueError as error:
            raise DataLossError(
                f"{folder / MANIFEST}: not the manifest of a saved dataset: {error}; save the dataset again"
            ) from error
        if compression not in {None, "", "AUTO", manifest["compression"]}:
            raise PlanError(f"load: {path} was saved with compression={manifest['compression']!r}, got {compression!r}")
        for name, _, size in manifest["shards"]:
            with suppress(FileNotFoundError):
                if (now := (folder / name).stat().st_size) != size:
                    raise DataLossError(f"{folder / name}: it had {size} bytes when it was saved, now {now}")
        shards = {str(folder / name): count for name, count, _ in manifest["shards"]}
        return cls(folder, manifest["compression"], shards, max_record_bytes, manifest.get("checksums", ()))

    def file(self, path: str) -> ElementFile:
        return ElementFile(
            path,
            self.compression,
            files=None if self.compression else self.indexes,
            count=self.shards[path],
            max_record_bytes=self.indexes.most,
        )

    def plan(self) -> Node:
        """Return the plan that reads all files, one after another."""
        catalog = None if self.compression else FileCatalog([*self.shards], self)
        call = Call("load", self.file, spread=False)
        names, count = FileNames([*self.shards]), sum(self.shards.values())
        return SavedFiles(names, call, catalog, count=count, checksums=tuple(self.checksums))

    def counts(self, paths: Sequence[str]) -> list[int]:
        return [self.shards[path] for path in paths]

    def position(self, path: str, number: int) -> Position:
        return self.indexes.position(path, number)

    def is_broken(self, path: str) -> bool:
        """Return whether a file is missing; `at` has compared the sizes of all others."""
        return not Path(path).exists()

    def fetch(self, spots: Sequence[Spot], scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return elements_at(self.indexes.fetch(spots, scope, want, tickets), spots, ElementFile.method)
