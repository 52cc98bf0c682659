"""Files of safetensors as a source of rows: read in order, or any row by its number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import rows_of
from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.safetensors import BEGIN_BYTES, TensorRows, header_bytes, rows_of_header
from asyncdata.graph.node import PHYSICAL
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import Position
from asyncdata.sources.files_with_headers import FilesWithHeaders, KnownFile, check_unchanged
from asyncdata.sources.numbered_files import NumberedFile, in_order, runs
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, is_local_or_cached, open_file, without_query

__all__ = ("SafetensorsFile", "SafetensorsFiles")

AT_ONCE = 4 * BLOCK_BYTES
"""About how many bytes are read together."""


@dataclass
class KnownTensors(KnownFile):
    """Where the rows of a file's tensors are."""

    tensors: dict[str, TensorRows] = field(default_factory=dict[str, TensorRows])


class SafetensorsFiles(FilesWithHeaders[KnownTensors]):
    """Files of tensors, whose headers are read once."""

    method: ClassVar = "SafetensorsDataset"
    known_file = KnownTensors

    def __init__(self, names: Sequence[str] | None = None, storage: StorageOptions | None = None) -> None:
        super().__init__(storage)
        self.names = names

    def inspect(self, file: AnyPart, path: str) -> KnownTensors:
        """Read the header of a file. If it is damaged, or the file has another size, that is its only element."""
        known = KnownTensors(file.status())
        try:
            length = header_bytes(file.read_at(0, BEGIN_BYTES), known.status.size)
            known.tensors = rows_of_header(file.read_at(BEGIN_BYTES, length), known.status.size, self.names)
            known.records = next((rows.shape[0] for rows in known.tensors.values()), 0)
        except ValueError as error:
            known.error = DataLossError(f"{without_query(path)}: {error}")
        return known

    def version(self, path: str) -> str:
        return "" if is_local_or_cached(path, self.storage) else str(self.of(path).status.changed_ns)

    def at_once(self) -> int:
        sizes = [sum(rows.row_bytes for rows in known.tensors.values()) for known in self.known.values()]
        return min(4096, AT_ONCE // max(1, *sizes, 1))

    def read_file(self, path: str, records: Sequence[int]) -> Any:
        known = self.of(path)
        if known.error is not None:
            return [known.error] * len(records)
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, known.status)
            found = [self.rows(path, file, known, start, stop) for start, stop in runs(records)]
        return found[0] if len(found) == 1 else [*chain.from_iterable(found)]

    def rows(self, path: str, file: AnyPart, known: KnownTensors, start: int, stop: int) -> Any:
        """Return consecutive rows, in arrays that may be changed."""
        arrays = dict[str, Any]()
        for name, rows in known.tensors.items():
            data = bytearray((stop - start) * rows.row_bytes)
            if file.fill_at(rows.begin + start * rows.row_bytes, memoryview(data)) < len(data):
                raise DataLossError(f"{without_query(path)}: it ends before byte {rows.end}, where rows were expected")
            arrays[name] = np.frombuffer(data, rows.dtype).reshape(stop - start, *rows.shape[1:])
        if stop - start == 1:
            return [{name: array[0] for name, array in arrays.items()}]
        return ColumnBatch.of(arrays, owned=True) or rows_of(arrays, stop - start)


@dataclass(frozen=True, eq=False)
class SafetensorsFile(NumberedFile):
    """The rows of the tensors in one file."""

    method: ClassVar[str] = "SafetensorsDataset"
    numbered_anywhere = True

    files: SafetensorsFiles = field(kw_only=True, repr=False, metadata=PHYSICAL)
    names: Sequence[str] | None = field(default=None, kw_only=True, repr=False)

    @property
    def random_access(self) -> bool:
        return is_local_or_cached(self.path, self.storage)

    @property
    def cardinality(self) -> int:
        return super().cardinality if self.random_access else UNKNOWN_CARDINALITY

    def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the rows in order, which are read in a thread."""
        return in_order(self, self.files, scope, want, position)
