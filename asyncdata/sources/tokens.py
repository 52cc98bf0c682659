"""Files of tokens as a source: windows of one length, documents or sequences, in order or any by its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.tokens import HEADER_BYTES, TokenIndex, TokenWindows, index_of
from asyncdata.graph.node import PHYSICAL
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import Position
from asyncdata.sources.files_with_headers import FilesWithHeaders, KnownFile, check_unchanged
from asyncdata.sources.numbered_files import NumberedFile, in_order, runs
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, open_file, without_query
from asyncdata.storage.base import Status

__all__ = ("TokenFile", "TokenFiles", "TokenLayout", "index_path")

MOST: Final = 4096
"""How many documents or sequences are read at once, if they are short."""


@dataclass(frozen=True)
class TokenLayout:
    """What the elements of files of tokens are, and where the tokens begin."""

    window: TokenWindows | str
    """Windows, or "document" or "sequence"."""
    dtype: np.dtype[Any] | None = None
    """The dtype of raw files; `None` for those with an index."""
    header_bytes: int = 0


@dataclass
class KnownTokens(KnownFile):
    """What is known of a file without reading its tokens."""

    dtype: np.dtype[Any] = np.dtype("u1")  # noqa: RUF009  it cannot be changed
    index: TokenIndex | None = None
    index_status: Status | None = None


@dataclass(frozen=True)
class OpenTokens:
    """A file of tokens that is open, and its index if that is needed."""

    path: str
    file: AnyPart
    index: AnyPart | None
    known: KnownTokens

    def between(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens in some bytes, in an array that may be changed."""
        data = bytearray(end - begin)
        if self.file.fill_at(begin, memoryview(data)) < len(data):
            raise DataLossError(f"{without_query(self.path)}: it ends before byte {end}, where tokens were expected")
        return np.frombuffer(data, self.known.dtype)


class TokenFiles(FilesWithHeaders[KnownTokens]):
    """Files of tokens of one layout. Their sizes, and the headers of their indexes, are read once."""

    method: ClassVar = "TokenDataset"
    known_file = KnownTokens

    def __init__(
        self,
        layout: TokenLayout,
        storage: StorageOptions | None = None,
        spans: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(storage)
        self.layout = layout
        self.spans = spans or {}
        """Where the tokens of files begin and end, if an index says it."""

    def inspect(self, file: AnyPart, path: str) -> KnownTokens:
        """Read the header of a file's index, if it has one, and compare it with the file."""
        status = file.status()
        if self.layout.dtype is not None:
            return KnownTokens(status, self.windows_in(path, status, self.layout.dtype), dtype=self.layout.dtype)
        with open_file(beside := index_path(path), self.storage) as indexed:
            try:
                index = index_of(indexed.read_at(0, HEADER_BYTES))
                index.check(indexed.read_at, (index_status := indexed.status()).size, status.size)
            except ValueError as error:
                raise DataLossError(f"{without_query(beside)}: {error}: it is damaged, or of other tokens") from None
        if self.layout.window == "sequence":
            count = index.sequences
        else:
            is_document = self.layout.window == "document"
            count = index.documents if is_document else self.windows_in(path, status, index.dtype)
        return KnownTokens(status, count, None, index.dtype, index, index_status)

    def windows_in(self, path: str, status: Status, dtype: np.dtype[Any]) -> int:
        """Return how many windows a file has; `DataLossError` if it does not consist of tokens."""
        assert isinstance(self.layout.window, TokenWindows)
        begin, end = self.spans.get(path, (self.layout.header_bytes, status.size))
        if status.size != end:
            raise DataLossError(
                f"{without_query(path)}: it has {status.size} bytes, and {end} by the index of its folder"
            )
        tokens, rest = divmod(end - begin, dtype.itemsize)
        if tokens < 0 or rest:
            after = f" after a header of {self.layout.header_bytes}" if self.layout.header_bytes else ""
            raise DataLossError(f"{without_query(path)}: {status.size} bytes are no tokens of {dtype}{after}")
        return self.layout.window.count(tokens)

    def at_once(self) -> int:
        """Return how many windows or documents have about the size of a block."""
        sizes = [known.status.size / max(1, known.count) for known in self.known.values()]
        return int(min(MOST, BLOCK_BYTES // max(1, *sizes, 1)))

    def read_file(self, path: str, records: Sequence[int]) -> Any:
        known = self.of(path)
        if known.error is not None:
            return [known.error] * len(records)
        with ExitStack() as stack:
            file, index = stack.enter_context(open_file(path, self.storage)), None
            check_unchanged(path, file, known.status)
            if not isinstance(self.layout.window, TokenWindows):
                index = stack.enter_context(open_file(index_path(path), self.storage))
                check_unchanged(index_path(path), index, known.index_status)
            found = [self.run_of(OpenTokens(path, file, index, known), start, stop) for start, stop in runs(records)]
        return found[0] if len(found) == 1 else [*chain.from_iterable(found)]

    def run_of(self, tokens: OpenTokens, start: int, stop: int) -> Sequence[Any]:
        """Return consecutive elements, errors in the places of lost ones."""
        read = self.windows if isinstance(self.layout.window, TokenWindows) else self.parts
        try:
            return read(tokens, start, stop)
        except DataLossError as error:
            if stop - start == 1:
                return [error.with_traceback(None)]
        return [self.run_of(tokens, one, one + 1)[0] for one in range(start, stop)]

    def windows(self, tokens: OpenTokens, start: int, stop: int) -> Any:
        """Return consecutive windows, as rows of one array if they have one length."""
        layout, size, whole = self.layout, tokens.known.dtype.itemsize, tokens.known.status.size
        assert isinstance(layout.window, TokenWindows)
        length, step = layout.window.length, layout.window.step
        begin = self.spans.get(tokens.path, (layout.header_bytes, 0))[0] + start * step * size
        end = begin + ((stop - start - 1) * step + length) * size
        found = tokens.between(begin, min(end, whole))
        if stop - start == 1:
            return [found]
        if end > whole:
            return [found[at : at + length].copy() for at in range(0, step * (stop - start), step)]
        return sliding_window_view(found, length)[::step].copy()

    def parts(self, tokens: OpenTokens, start: int, stop: int) -> Sequence[Any]:
        """Return consecutive documents or sequences."""
        assert tokens.index is not None
        assert tokens.known.index is not None
        try:
            documents = self.layout.window == "document"
            ends = tokens.known.index.ends(tokens.index.read_at, start, stop, documents=documents)
        except ValueError as error:
            raise DataLossError(f"{without_query(index_path(tokens.path))}: {error}") from None
        found = tokens.between(int(ends[0]), int(ends[-1]))
        if stop - start == 1:
            return [found]
        places = ((ends - ends[0]) // tokens.known.dtype.itemsize).tolist()
        return [found[begin:end].copy() for begin, end in pairwise(places)]

    def is_end(self, path: str, record: int) -> bool:
        return self.is_broken(path)


def index_path(path: str) -> str:
    """Return the path of the index of a file; what follows a `?` in a URL stays at the end."""
    return path.replace(name := without_query(path), f"{name.removesuffix('.bin')}.idx", 1)


@dataclass(frozen=True, eq=False)
class TokenFile(NumberedFile):
    """The windows, documents or sequences of one file. A file that is damaged as a whole is one error."""

    method: ClassVar[str] = "TokenDataset"

    files: TokenFiles = field(kw_only=True, repr=False, metadata=PHYSICAL)
    layout: TokenLayout = field(kw_only=True, repr=False)

    def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the elements in order, which are read in a thread."""
        return in_order(self, self.files, scope, want, position)
