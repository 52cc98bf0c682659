"""Small real files, made once for all laws, and the datasets that read them, each with what its elements are."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import importlib.util
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.tfrecord import frame
from asyncdata.sources.listing import Listing
from asyncdata.web.queued import Queued
from tests import reference
from tests.lerobot import write_lerobot
from tests.litdata import lit_chunk, write_index
from tests.mds import mds_shard
from tests.queues import ListQueue
from tests.reference import DAMAGED, Failed
from tests.safetensors import safetensors_of
from tests.tfds import tfds_shards, write_tfds

MISSING = Failed("FileNotFoundError", of_source=True)

DEFAULTS = [np.int32, b"none"]
"""Of the columns of the tables."""


@dataclass(frozen=True)
class FileSource:
    """A dataset that reads files, made anew by each call of `build`, and its elements, the same in each epoch."""

    text: str
    build: Callable[[], ad.Dataset[Any]]
    elements: Sequence[Any]


@dataclass
class Folder:
    """Where files are kept as long as the tests run, and what is in each."""

    path: Path
    found: dict[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def add(self, name: str, content: bytes, meaning: Callable[[bytes], Iterable[Any]]) -> None:
        """Write a file, and another with the same content that is compressed if nothing is wrong with it."""
        (self.path / name).write_bytes(content)
        self.found[name] = [*meaning(content)]
        if Failed not in map(type, self.found[name]):
            (self.path / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            self.found[f"{name}.gz"] = self.found[name]

    def of(self, kind: str, compressed: bool) -> list[str]:
        """Return the names of the files of a kind, one that is missing among them."""
        suffix = f".{kind}{'.gz' if compressed else ''}"
        return sorted(name for name in self.found if name.endswith(suffix))


KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""What is deleted when the interpreter ends."""


@cache
def scratch() -> Path:
    """Return a folder that is there until the interpreter ends."""
    KEPT.append(tempfile.TemporaryDirectory(prefix="asyncdata-laws-"))
    return Path(KEPT[0].name)


@cache
def folder() -> Folder:
    """Write all files, once."""
    made = Folder(scratch() / "files")
    made.path.mkdir()
    add_records(made)
    add_lines(made)
    add_json(made)
    add_samples(made)
    add_arrays(made)
    add_shards(made)
    add_tokens(made)
    add_tensors(made)
    add_chunks(made)
    add_tfds(made.path / "tfds")
    add_energon(made)
    add_fixed(made)
    add_tables(made)
    for kind in ("records", "lines", "jsonl", "tar", "npy", "mds", "lit", "tokens", "tensors", "fixed", "csv"):
        made.found[f"missing.{kind}"] = [MISSING]
    add_database(made.path / "table.db")
    (made.path / "table").write_text("number,half\n" + "".join(f"{row},{row / 2}\n" for row in range(7)))
    ad.Dataset.from_iterable(SAVED).save(made.path / "saved", shard_func=shard_of)
    asyncio.run(fill_channel(made.path / "channel"))
    return made


def add_records(made: Folder) -> None:
    """Records of many lengths; one is corrupt in a file, another file is cut short."""
    records = [bytes([65 + number]) * (number * 7 % 40) for number in range(26)]
    framed = [*map(frame, records)]
    made.add("a.records", b"".join(framed), reference.tf_records)
    made.add("b.records", b"", reference.tf_records)
    damaged = framed[9][:13] + b"~" + framed[9][14:]
    made.add("c.records", b"".join([*framed[:9], damaged, *framed[10:14]]), reference.tf_records)
    made.add("d.records", b"".join(framed[4:8]) + framed[8][:-3], reference.tf_records)


def add_lines(made: Folder) -> None:
    lines = [b"", b"one", b"", b"four", b"x" * 200, *[b"line %d" % number for number in range(19)]]
    made.add("a.lines", b"\n".join(lines) + b"\n", reference.text_lines)
    made.add("b.lines", b"\r\n".join(lines[:7]), reference.text_lines)
    made.add("c.lines", b"", reference.text_lines)


def add_json(made: Folder) -> None:
    """Values of several kinds; in one file a line is no JSON, and others are blank."""
    lines = [b'{"number": %d, "name": "#%d"}' % (number, number) for number in range(20)]
    made.add("a.jsonl", b"\n".join(lines), reference.json_lines)
    made.add("b.jsonl", b"\n".join([*lines[:2], b"", b'{"number": 1', b" \r", lines[3], b""]), reference.json_lines)


def add_samples(made: Folder) -> None:
    """Samples of several members, a folder between them; one archive is cut short."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(17):
            members = {"txt": b"#%d" % number, "cls": b"%d" % number, "bin": bytes([number]) * (number * 60)}
            for extension, content in list(members.items())[: 1 + number % 3]:
                info = tarfile.TarInfo(f"{number:03}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            if number == 4:
                info = tarfile.TarInfo("folder.d")
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
    made.add("a.tar", file.getvalue(), reference.tar_samples)
    made.add("b.tar", bytes(10240), reference.tar_samples)
    made.add("c.tar", file.getvalue()[:9000], reference.tar_samples)


def add_energon(made: Folder) -> None:
    """A folder of archives, one of which has an index beside it, one is cut short, and one is missing."""
    path = made.path / "energon"
    (path / ".nv-meta").mkdir(parents=True)
    for name in "ac":
        (path / f"{name}.tar").write_bytes((made.path / f"{name}.tar").read_bytes())
    with tarfile.open(path / "a.tar") as archive:
        begins = {member.name.partition(".")[0]: member.offset for member in [*archive][::-1] if member.isreg()}
        (path / "a.tar.idx").write_bytes(np.array(sorted([*begins.values(), archive.offset]), "<u8").tobytes())
    for name, more in (("split", {}), ("some", {"exclude": ["a.tar/{000,004,016}", "missing.tar", "c.tar/001"]})):
        split = {"split_parts": {"train": ["{a,missing,c}.tar"]}, **more}
        (path / ".nv-meta" / f"{name}.json").write_text(json.dumps(split))


def add_arrays(made: Folder) -> None:
    """Rows of several shapes; one file is cut short, another holds several arrays."""
    for name, array in {
        "a": np.arange(23, dtype=np.int16),
        "b": np.arange(30.0).reshape(10, 3),
        "c": np.asfortranarray(np.arange(8).reshape(4, 2)),
        "d": np.zeros((0, 2)),
    }.items():
        file = io.BytesIO()
        np.save(file, array)
        made.add(f"{name}.npy", file.getvalue(), reference.npy_rows)
        made.add(f"cut-{name}.npy", file.getvalue()[:-30], reference.npy_rows)
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(9), y=np.arange(18.0).reshape(9, 2))
    made.add("e.npy", file.getvalue(), reference.npy_rows)


def add_shards(made: Folder) -> None:
    """Samples of a text and a number; in one file a text is damaged, another file is cut short."""
    columns = {"number": ("int", 8), "text": ("str", None)}
    rows = [[np.int64(number).tobytes(), b"#%d" % number * (number % 5)] for number in range(22)]
    made.add("a.mds", mds_shard(columns, rows), reference.mds_samples)
    made.add("b.mds", mds_shard(columns, [*rows[:4], [rows[4][0], b"\xff"], *rows[5:9]]), reference.mds_samples)
    made.add("c.mds", mds_shard(columns, rows[:8])[:-5], reference.mds_samples)
    made.add("d.mds", mds_shard(columns, []), reference.mds_samples)


def add_chunks(made: Folder) -> None:
    """Chunks of samples; of one a sample is no text, another is cut short, another is missing."""
    rows = [(number, b"#%d" % number) for number in range(23)]
    made.add("a.lit", lit_chunk(rows), reference.lit_samples)
    made.add("b.lit", lit_chunk([*rows[:4], (4, b"\xff"), *rows[5:9]]), reference.lit_samples)
    made.add("c.lit", lit_chunk(rows[:8])[:-5], reference.lit_samples)
    write_index(made.path, {"a.lit": 23, "b.lit": 9, "missing.lit": 1, "c.lit": 8})


EPISODES = [4, 2, 3]
"""The frames of each episode."""

TFDS = [range(7), range(7, 12), range(15, 18), range(20, 24)]
"""The numbers in the shards that are there."""


def add_tfds(path: Path) -> None:
    """Shards of two splits; in one a record is corrupt, and one is missing."""
    path.mkdir()
    write_tfds(path, {"a": [*TFDS[:2], range(12, 15), TFDS[2]], "b": [TFDS[3]]})
    _, second, missing, _ = tfds_shards(path, "a", 4)
    content = second.read_bytes()
    at = content.index(b"#8")
    second.write_bytes(content[:at] + b"~" + content[at + 1 :])
    missing.unlink()


def add_tokens(made: Folder) -> None:
    """Tokens; one file is cut short."""
    meaning = partial(reference.token_windows, length=4, overlap=1)
    content = np.arange(48, dtype=np.uint16).tobytes()
    for name, part in (("a", content), ("b", content[:2]), ("c", b""), ("d", content[:-5])):
        made.add(f"{name}.tokens", part, meaning)


def tokens(names: Any, num_parallel_reads: int | None = None, **_: Any) -> ad.Dataset[Any]:
    return ad.TokenDataset(names, 4, 1, "uint16", drop_remainder=False, num_parallel_reads=num_parallel_reads)


def add_tensors(made: Folder) -> None:
    """Rows of two tensors; one file is cut short."""
    content = safetensors_of({"x": np.arange(38, dtype=np.int16).reshape(19, 2), "y": np.arange(19) / 2})
    for name, part in (("a", content), ("b", safetensors_of({"x": np.zeros((0, 2))})), ("c", content[:-5])):
        made.add(f"{name}.tensors", part, reference.safetensors_rows)


def safetensors(names: Any, num_parallel_reads: int | None = None, **_: Any) -> ad.Dataset[Any]:
    return ad.SafetensorsDataset(names, num_parallel_reads=num_parallel_reads)


def add_fixed(made: Folder) -> None:
    """Records of three bytes after a header of two and before a footer of one."""
    records = [b"%03d" % number for number in range(31)]
    meaning = partial(reference.fixed_length_records, size=3, header=2, footer=1)
    made.add("a.fixed", b"##" + b"".join(records) + b"!", meaning)
    made.add("b.fixed", b"##!", meaning)
    made.add("c.fixed", b"##" + b"".join(records[:4]) + b"9!", meaning)
    made.add("d.fixed", b"##" + b"".join(records[20:]) + b"!", meaning)


def add_tables(made: Folder) -> None:
    """Two columns; in one file a record has a field too many, another has no number."""
    meaning = partial(reference.csv_records, defaults=DEFAULTS)
    rows = [b'%d,"name %d"\n' % (number * number, number) for number in range(25)]
    made.add("a.csv", b"".join(rows), meaning)
    made.add("b.csv", b"".join([*rows[:3], b"1,2,3\n", rows[4], b"x,y\n", b"7,\n"]), meaning)


def add_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE numbers (number INTEGER, name TEXT)")
        db.executemany("INSERT INTO numbers VALUES (?, ?)", [(number, f"n{number}") for number in range(21)])
        db.commit()


SENT = [b"0\n1\n2", b"3", b'"no number"', b"4\n" * 11, b"", b"5\n6", b'7\n"no number"\n8', b"9"]
"""What was sent to a channel: a few lines in each request."""


async def fill_channel(path: Path) -> None:
    """Send all, into several files, and say that nothing more comes."""
    channel = ad.DurableChannel(path, segment_bytes=300)
    for body in SENT:
        await channel.send(body, content_type="application/x-ndjson")
    channel.end()


SAVED = [(number, {"name": f"#{number}", "values": np.arange(number % 4)}) for number in range(23)]
"""What is kept in files of elements: structures, arrays, strings."""


def shard_of(number: int, _: object) -> int:
    return number % 2


READERS: dict[str, Callable[..., ad.Dataset[Any]]] = {
    "records": ad.TFRecordDataset,
    "lines": ad.TextLineDataset,
    "jsonl": ad.JsonLinesDataset,
    "tar": ad.WebDataset,
    "npy": ad.NpyDataset,
    "mds": lambda names, compression_type=None, **how: ad.MdsDataset(names, **how),  # names tell the compression
    "tokens": tokens,
    "tensors": safetensors,
    "fixed": lambda names, **how: ad.FixedLengthRecordDataset(names, 3, 2, 1, **how),
    "csv": lambda names, **how: ad.experimental.CsvDataset(names, DEFAULTS, **how),
}


@st.composite
def file_sources(draw: st.DrawFn, kinds: Sequence[str] = ()) -> FileSource:
    """Some files of one kind, read one after the other or two at once, in blocks that are as small as can be or not."""
    kind = draw(st.sampled_from(kinds or [*READERS, *OTHERS]))
    if kind in OTHERS:
        return OTHERS[kind](draw)
    compressed = kind not in ("tokens", "tensors") and draw(st.sampled_from([False, False, True]))
    names = draw(st.lists(st.sampled_from(folder().of(kind, compressed)), min_size=1, max_size=3))
    how: dict[str, Any] = {"compression_type": "GZIP"} if compressed else {}
    if (size := draw(st.sampled_from([None, 1, 37]))) is not None:
        how["buffer_size"] = size
    if kind != "csv" and draw(st.integers(0, 2)) == 0:
        how["num_parallel_reads"] = draw(st.sampled_from([1, 2]))
    if kind in ("jsonl", "mds", "npy", "records", "tar") and not compressed and draw(st.booleans()):
        how["index"] = True
    as_dataset = draw(st.booleans())
    return FileSource(
        f"{kind}({names}, {how}, {as_dataset=})",
        partial(read_by, READERS[kind], [str(folder().path / name) for name in names], as_dataset, how),
        elements_of(names, how.get("num_parallel_reads")),
    )


def read_by(reader: Any, paths: list[str], as_dataset: bool, how: dict[str, Any]) -> ad.Dataset[Any]:
    """The elements of files. Their paths are known where it is called, which may be in another process."""
    return reader(ad.Dataset.from_list(paths) if as_dataset else paths, **how)


def elements_of(names: Sequence[str], at_once: int | None) -> list[Any]:
    found = folder().found
    if at_once is None:
        return [element for name in names for element in found[name]]
    return list(reference.interleave(names, found.__getitem__, at_once))


def listed_files(draw: st.DrawFn) -> FileSource:
    """The names of files by several patterns, sorted; one that two patterns match is there twice."""
    endings = draw(st.lists(st.sampled_from(["lines", "fixed", "?*d", "records.gz"]), min_size=1, max_size=2))
    found = reference.list_files(there(), [f"*.{ending}" for ending in endings])

    patterns = [str(folder().path / f"*.{ending}") for ending in endings]

    def build() -> ad.Dataset[Any]:
        return ad.Dataset.list_files(patterns, shuffle=False).map(os.path.basename)

    return FileSource(f"list_files({endings})", build, found)


def there() -> list[str]:
    return [path.name for path in folder().path.iterdir() if "." in path.name]


def batches_of_a_table(draw: st.DrawFn) -> FileSource:
    """Dicts of columns."""
    size, path = draw(st.sampled_from([1, 3, 7, 8])), folder().path / "table"
    return FileSource(
        f"make_csv_dataset({size})",
        lambda: ad.experimental.make_csv_dataset(path, size, num_epochs=1, shuffle=False),
        [*reference.csv_table(path.read_bytes(), size)],
    )


def rows_of_a_query(draw: st.DrawFn) -> FileSource:
    most = draw(st.sampled_from([21, 8, 0]))
    query, types = f"SELECT number, name FROM numbers WHERE number < {most} ORDER BY number DESC", (np.int64, str)
    path = folder().path / "table.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute(query).fetchall()
    return FileSource(
        f"sql({most})",
        lambda: ad.experimental.SqlDataset("sqlite", path, query, types),
        [*reference.sql_rows(rows, types)],
    )


def saved_elements(_: st.DrawFn) -> FileSource:
    found = [*reference.load(SAVED, shard_of)]
    path = folder().path / "saved"
    return FileSource("load(saved)", lambda: ad.Dataset.load(path), found)


def listed_pages(draw: st.DrawFn) -> FileSource:
    """The names of files, listed page by page, as where they are many."""
    pattern = f"*.{draw(st.sampled_from(['lines', 'c*', '*']))}"
    begin, found = f"local://{folder().path}/", reference.list_files(there(), [pattern])
    return FileSource(f"listing({pattern})", lambda: ad.Dataset(Listing(begin + pattern)).map(os.path.basename), found)


def samples_of_tfds(draw: st.DrawFn) -> FileSource:
    """A split of a folder of shards, of which one has a corrupt record, and one is missing."""
    split, index = draw(st.sampled_from(["all", "a[2:9]", "a[12:]+b"])), draw(st.booleans())
    path = folder().path / "tfds"
    first, second, last, other = ([{"number": np.int32(n), "name": b"#%d" % n} for n in shard] for shard in TFDS)
    second[1] = DAMAGED
    found = {
        "all": [*first, *second, MISSING, *last, *other],
        "a[2:9]": [*first[2:], *second[:2]],
        "a[12:]+b": [MISSING, *last, *other],
    }
    return FileSource(f"tfds({split}, {index=})", lambda: ad.TfdsDataset(path, split, index=index), found[split])


@cache
def robot() -> Path:
    """Write a folder of LeRobot, once; the file of its second episode is missing."""
    made = write_lerobot(scratch() / "robot", EPISODES, camera=False)
    (made / "data" / "chunk-000" / "file-001.parquet").unlink()
    return made


def frames_of_lerobot(draw: st.DrawFn) -> FileSource:
    """Some episodes of a folder, with a window of their numbers."""
    chosen, reads = draw(st.sampled_from([[0, 1, 2], [2, 0], [1]])), draw(st.sampled_from([None, 2]))
    deltas, columns = {"number": [-0.1, 0, 0.1]}, ["number", "frame_index"]
    found: list[Any] = []
    for episode in chosen:
        begin, length = sum(EPISODES[:episode]), EPISODES[episode]
        for number in range(length):
            places = range(number - 1, number + 2)
            row = {"number": np.array([begin + min(max(one, 0), length - 1) for one in places], np.int32)}
            pad = np.array([not 0 <= one < length for one in places])
            found.append({**row, "frame_index": np.int64(number), "number_is_pad": pad})
        if episode == 1:
            found[-length:] = [Failed("FileNotFoundError")] * length
    return FileSource(
        f"lerobot({chosen}, {reads})", lambda: ad.LeRobotDataset(robot(), chosen, deltas, columns, reads), found
    )


def samples_of_energon(draw: st.DrawFn) -> FileSource:
    """A part of a folder, all of it, or without some samples and archives."""
    name, index = draw(st.sampled_from(["split", "some"])), draw(st.booleans())
    path, found = folder().path / "energon", folder().found
    if name == "split":
        samples = [*found["a.tar"], MISSING, *found["c.tar"]]
    else:
        kept = [sample for sample in found["a.tar"] if sample["__key__"] not in ("000", "004", "016")]
        samples = [*kept, *[one for one in found["c.tar"] if type(one) is not dict or one["__key__"] != "001"]]
    how: dict[str, Any] = {"split_config": f"{name}.json", "dataset_config": None, "index": index}
    return FileSource(f"energon({how})", lambda: ad.EnergonDataset(path, **how), samples)


def chunks_of_litdata(draw: st.DrawFn) -> FileSource:
    """What is in a folder of chunks."""
    how = draw(st.sampled_from([{}, {"index": True}, {"num_parallel_reads": 2}, {"buffer_size": 37}]))
    found = elements_of(["a.lit", "b.lit", "missing.lit", "c.lit"], how.get("num_parallel_reads"))
    path = folder().path
    return FileSource(f"litdata({how})", lambda: ad.LitDataset(path, **how), found)


def stored_items(draw: st.DrawFn) -> FileSource:
    """What a durable channel has stored, some of it several times."""
    window, replay = draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (4, 3)]))
    path = folder().path / "channel"  # written here: inside of `flat_map` an event loop runs already
    return FileSource(
        f"from_channel(path, {window=}, {replay=})",
        lambda: ad.Dataset.from_channel(path, decode=int, window=window, replay=replay),
        [*reference.replayed([*reference.from_channel(SENT, int)], window, replay)],
    )


def queued_messages(draw: st.DrawFn) -> FileSource:
    """What a queue on a server holds."""
    at_once = draw(st.sampled_from([1, 3, 100]))
    found = [*reference.from_queue(SENT)]
    return FileSource(f"queue({at_once})", lambda: ad.Dataset(Queued(ListQueue(tuple(SENT), at_once))), found)


OTHERS: dict[str, Callable[[st.DrawFn], FileSource]] = {
    "sql": rows_of_a_query,
    "saved": saved_elements,
    "listed": listed_files,
    "table": batches_of_a_table,
    "litdata": chunks_of_litdata,
    "tfds": samples_of_tfds,
    "energon": samples_of_energon,
    "stored": stored_items,
    "queued": queued_messages,
}
"""What is read otherwise than by a list of paths."""

if importlib.util.find_spec("pyarrow"):
    OTHERS["lerobot"] = frames_of_lerobot

if importlib.util.find_spec("fsspec"):  # of the extra `remote`, which `test` has
    OTHERS["pages"] = listed_pages
