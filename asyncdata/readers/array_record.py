"""ArrayRecordDataset: the records of ArrayRecord files, with random access."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.graph.node import Node, check_count
from asyncdata.readers.files import Filename, checked
from asyncdata.sources.array_record import ArrayRecords, array_record
from asyncdata.sources.in_memory import Getter, Items, Range
from asyncdata.transforms.map import Map

__all__ = ("ArrayRecordDataset", "array_records_of")


class ArrayRecordDataset(Dataset[bytes]):
    """The records of ArrayRecord files, as `bytes`, with random access, so that `shuffle()` needs no buffer.

    Files are opened when the dataset is made. A file that is missing, cut short or of another format is one error in
    its place, and the next file follows. It counts as one record: `skip` and `shard` leave it out if they leave out
    that record. In a corrupt group of records each record is an error. Needs `pip install 'asyncdata[array-record]'`,
    on Linux.

    >>> import asyncdata as ad
    >>> from array_record.python.array_record_module import ArrayRecordWriter  # doctest: +SKIP
    >>> writer = ArrayRecordWriter("/tmp/a.array_record", "group_size:1")  # doctest: +SKIP
    >>> writer.write(b"one"), writer.write(b"two"), writer.close()  # doctest: +SKIP
    (None, None, None)
    >>> ds = ad.ArrayRecordDataset("/tmp/a.array_record")  # doctest: +SKIP
    >>> len(ds), ds[1], sorted(ds.shuffle())  # doctest: +SKIP
    (2, b'two', [b'one', b'two'])
    """

    def __init__(
        self, filenames: Filename | Sequence[Filename] | Dataset[str], num_parallel_reads: int | None = None
    ) -> None:
        """Read `filenames`, a local path, several, or `list_files(shuffle=False)`.

        Records are read in `num_parallel_reads` threads, one by default.
        """
        method = "ArrayRecordDataset"
        array_record()  # raises here if it is not installed
        if num_parallel_reads is not None:
            check_count(method, "num_parallel_reads", num_parallel_reads, 1)
        names = [checked(method, name) for name in names_in(method, filenames)]
        super().__init__(array_records_of(names, num_parallel_reads))


def array_records_of(names: Sequence[str], reads: int | None, lengths: Sequence[int] | None = None) -> Node:
    """Return the plan that reads files; `lengths` is how many records they have, if it is known."""
    records = ArrayRecords(names, lengths)
    get = Getter(records)
    get.name = get.label = f"ArrayRecordDataset({len(names)} files, {len(records)} records)"
    return Map.of(Range(range(len(records))), get, reads, None, "thread")


def names_in(method: str, filenames: Any) -> Sequence[Any]:
    """Return the names of files, which must be known when the dataset is made; else `PlanError`."""
    if isinstance(filenames, (str, bytes, os.PathLike)):
        return [cast("Any", filenames)]
    if isinstance(filenames, Dataset):
        plan = cast("Dataset[Any]", filenames).plan
        if isinstance(plan, Items):
            return plan.items
    elif hasattr(filenames, "__iter__"):
        return [*filenames]
    raise PlanError(
        f"{method}(filenames=) must be a path, several in a list, or list_files(shuffle=False), got {filenames!r:.80}"
    )
