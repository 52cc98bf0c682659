"""SampleParser: samples in tar archives in WebDataset's format, consecutive members with one key, without I/O."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from asyncdata.errors import DataLossError
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, offset_in, record_too_long
from asyncdata.formats.sample_decoders import Decoders
from asyncdata.formats.tar import (
    BEFORE,
    BLOCK,
    DESCRIBING,
    GNU_NAME,
    LINKS,
    UNUSED,
    Member,
    long_name,
    member_of,
    padded,
    pax_fields,
)

__all__ = ("KEY", "KeysSeen", "SampleParser", "apart", "key_of")

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY: Final = "__key__"
"""The name of the key in a sample."""

HIDDEN: Final = re.compile(r"__[^/]*__($|/)")
"""Names of metadata of the archive, which are not part of a sample."""


def key_of(name: str) -> tuple[str, str] | None:
    """Return the key and the extension in a member's name; `None` if it does not belong to a sample.

    >>> key_of("train/0001.seg.PNG")
    ('train/0001', 'seg.png')
    """
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    if not stem or not dot or (name.startswith("__") and HIDDEN.match(name)):
        return None
    return folder + slash + stem, extension.lower()


REMEMBERED: Final = 1 << 16
"""At least this many samples are remembered, at most twice as many."""


def apart(name: str, key: str, where: str) -> DataLossError:
    """Return the error for a sample whose members do not stand together in an archive."""
    return DataLossError(
        f"{name}: more members of the sample {key!r}, which has come before, are at {where}, and the rest of the file "
        "is not read; the members of a sample must stand together: write the archive with tar --sort=name"
    )


class KeysSeen:
    """The keys of the samples so far, each with the names in its dict.

    A key may come again with a complete sample, but not with other members of the same sample.
    """

    def __init__(self) -> None:
        self._latest: dict[str, frozenset[str]] = {}
        self._earlier: dict[str, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}  # most samples have the same extensions

    def completes(self, key: str, names: frozenset[str]) -> bool:
        """Note a sample; return whether an earlier one has the key and, except for `__key__`, none of these names."""
        before = self._latest.get(key) or self._earlier.get(key)
        if len(self._latest) == REMEMBERED:
            self._earlier, self._latest, self._same = self._latest, {}, {}
        self._latest[key] = self._same.setdefault(names, names)
        return before is not None and not (before & names) - {KEY}


class SampleParser:
    """Turns the bytes of an archive into samples: dicts of decoded members by extension, and the key.

    A sample with a member that cannot be decoded is an error in its place. If the archive is damaged or cut short, that
    error is the last element; so is a sample that, with the headers before it, has more than `most` bytes, and one of
    which other members came before another sample.
    """

    def __init__(
        self,
        name: str = "archive",
        most: int = MAX_RECORD_BYTES,
        decoders: Decoders | None = None,
        *,
        compressed: bool = False,
    ) -> None:
        self._name = name
        self._most = most
        self._decoders = decoders or Decoders({})
        self._where = offset_in(compressed)
        self._data: Buffer = b""  # not read from `_at` on
        self._at: int = 0
        self._rest = bytearray()  # the beginning of a header or a content
        self._offset = 0  # of the next header or content
        self._finished = False
        self.lost = False
        """Whether the last element returned is an error that replaces the rest of the file."""
        self.offset = 0
        """The byte offset of the next sample."""
        self.key = ""
        """The key of the last sample."""
        self._sample: dict[str, Any] | None = None
        self._key = ""
        self._seen = KeysSeen()
        self._problem: Exception | None = None  # with the sample
        self._member: Member | None = None  # whose content comes next
        self._unread: int = 0  # the next bytes, which are skipped
        self._extension: str | None = None  # of the member, if it is part of the sample
        self._first = 0  # the offset of the member's first header
        self._pax: tuple[str | None, int | None] = (None, None)  # name and size of the next member
        self._ended = False  # by zeros

    @property
    def skip(self) -> int:
        """Zero: `offset` is that of the next sample."""
        return 0

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where a sample begins."""
        self.offset = self._offset = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        self._data, self._at = data, 0

    def finish(self) -> None:
        """Mark the end of the data."""
        self._finished = True

    def parse(self, limit: int) -> list[Any]:
        """Return at most `limit` samples, errors in their places; [] when it needs more data or has ended."""
        found: list[Any] = []
        while len(found) < limit and not self.lost:
            try:
                sample = self._next()
            except DataLossError as error:
                self.lost = True
                sample = error
            if sample is None:
                break
            found.append(sample)
        return found

    def _next(self) -> dict[str, Any] | Exception | None:
        """Return the next sample, or `None` if it is incomplete."""
        while self._passed_by():
            if self._member is None:
                if (header := self._taken(BLOCK)) is None:
                    break
                if (sample := self._open(bytes(header))) is not None:
                    return sample
                continue
            self._check_size(self._member.size)
            if self._extension is None and self._member.kind not in DESCRIBING:
                self._unread = padded(self._member.size)
            elif (content := self._taken(padded(self._member.size))) is None:
                break
            else:
                self._read(self._member, bytes(content[: self._member.size]))
            self._member = None
        return self._at_end()

    def _check_size(self, size: int) -> None:
        """Raise if the sample is too long with a content of this size."""
        if self._offset + size - self.offset > self._most:
            raise record_too_long(self._name, f"the sample at {self._where} {self.offset}", self._most)

    def _taken(self, size: int) -> Buffer | None:
        """Return the next `size` bytes, or `None` if they have not all arrived."""
        if not self._rest and self._at + size <= len(self._data):
            taken: Buffer = self._data[self._at : self._at + size]
            self._at += size
        else:
            more = self._data[self._at : self._at + size - len(self._rest)]
            self._at += len(more)
            self._rest += more
            if len(self._rest) < size:
                return None
            taken = bytes(self._rest)
            self._rest.clear()
        self._offset += size
        return taken

    def _passed_by(self) -> bool:
        """Skip bytes that are not needed, as far as they have arrived; return whether all are skipped."""
        if self._unread:
            size: int = min(self._unread, len(self._data) - self._at)
            self._at += size
            self._offset += size
            self._unread -= size
        return self._unread == 0

    def _open(self, header: bytes) -> dict[str, Any] | Exception | None:
        """Take a header; return the sample that ends before it."""
        begin = self._offset - BLOCK
        try:
            member = member_of(header)
        except ValueError as error:
            raise DataLossError(f"{self._name}: at {self._where} {begin} a tar header was expected: {error}") from None
        if member is None:
            self._ended = True
            if (sample := self._done(begin)) is None:
                self._check_size(0)  # zeros without an end
            self._seen = KeysSeen()  # another archive may follow
            return sample
        self._ended = False
        if self._pax == (None, None):
            self._first = begin
        name, size = self._pax
        if member.kind not in BEFORE:
            member = Member(name or member.name, member.size if size is None else size, member.kind)
            self._pax = (None, None)
        key = None if member.kind in UNUSED else key_of(member.name)
        finished = self._done(self._first) if key is not None and key[0] != self._key else None
        if key is not None and self._sample is None:
            self._key, self._sample = key[0], {KEY: key[0]}
        if key is not None and not member.regular:
            self._refuse(member, key[1])
            key = None
        self._member, self._extension = member, None if key is None else key[1]
        return finished

    def _refuse(self, member: Member, extension: str) -> None:
        """Have the sample fail that has a member without a content of its own."""
        kind = "link" if member.kind in LINKS else f"member of kind {member.kind!r}"
        self._fail(
            extension,
            DataLossError(
                f"{self._name}: in the sample {self._key!r} at {self._where} {self.offset} {member.name!r} is a {kind} "
                "and no file: write the archive with tar -h --hard-dereference"
            ),
        )

    def _fail(self, extension: str, error: Exception) -> None:
        """Have the sample fail, unless it has failed before."""
        self._problem = self._problem or error
        if self._sample is not None:
            self._sample[extension] = None

    def _done(self, end: int) -> dict[str, Any] | Exception | None:
        """Return the sample that ends here, if there is one."""
        sample = self._sample
        if sample is None:
            return None
        if self._seen.completes(self._key, frozenset(sample)):
            raise apart(self._name, self._key, f"{self._where} {self.offset}")
        problem = self._problem
        self.key, self._key = self._key, ""
        self.offset = end
        self._sample = self._problem = None
        return sample if problem is None else problem

    def _read(self, member: Member, content: bytes) -> None:
        """Take the content of a member: a name, pax fields, or a part of the sample."""
        extension, sample = self._extension, self._sample
        if extension is None or sample is None:
            self._take_fields(member, content)
            return
        if extension in sample:
            where = f"the sample {self._key!r} at {self._where} {self.offset}"
            self._fail(extension, DataLossError(f"{self._name}: {where} has two members .{extension}"))
        if self._problem is not None:
            sample[extension] = None
            return
        try:
            sample[extension] = self._decoders.value(extension, content)
        except Exception as error:  # noqa: BLE001  a decoder may be the user's
            error.add_note(f"as {member.name} of the sample at {self._where} {self.offset} was decoded")
            self._fail(extension, error)

    def _take_fields(self, member: Member, content: bytes) -> None:
        """Read the name and size that a pax or GNU header gives the next member."""
        name, size = self._pax
        try:
            if member.kind == GNU_NAME:
                name = long_name(content)
            else:
                found, pax_size = pax_fields(content)
                name, size = found or name, size if pax_size is None else pax_size
        except ValueError as error:
            raise DataLossError(f"{self._name}: the header at {self._where} {self._first}: {error}") from None
        self._pax = name or "", size

    def _at_end(self) -> None:
        """Raise if the data has ended before the archive's end."""
        if not self._finished or (self._ended and not any(self._rest)):
            return
        if self._ended:
            raise DataLossError(f"{self._name}: at {self._where} {self._offset} a tar header was expected, or zeros")
        where = f"it ends within the member at {self._where} {self._first}"
        if self._member is None and not self._rest and not self._unread:
            where = f"its end marker is missing at {self._where} {self._offset}"
        raise DataLossError(f"{self._name}: cut short, or not a tar archive: {where}")
