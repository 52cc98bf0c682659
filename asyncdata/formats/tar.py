"""Headers of tar archives: ustar, GNU and pax, as far as names and sizes go."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

__all__ = ("BEFORE", "BLOCK", "GNU_NAME", "TELLING", "Member", "long_name", "member_of", "padded", "pax_fields")

BLOCK: Final = 512
"""Headers are of so many bytes, and contents are filled up to a multiple of it."""

REGULAR: Final = frozenset({b"0", b"\0", b"7"})
"""Kinds of members that are files."""

EMPTY: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
"""Links, devices and folders, which have no content, whatever size they tell."""

SPARSE: Final = b"S"

GNU_NAME: Final = b"L"
"""The name of the next member follows."""

TELLING: Final = frozenset({b"x", b"X", GNU_NAME})
"""Kinds of what tells of the next member: its name, or with pax any of its fields."""

BEFORE: Final = TELLING | {b"K", b"g"}
"""Kinds of all that may stand between that and the next member."""

SMALL_PRIME: Final = 65521
"""Adler-32 has the sum of bytes modulo it, and begins at one."""


class Member(NamedTuple):
    """What a header says of the member that follows."""

    name: str
    size: int
    kind: bytes

    @property
    def regular(self) -> bool:
        """Whether it is a file."""
        return self.kind in REGULAR


def padded(size: int) -> int:
    """Return how many bytes a content of this size takes."""
    return -(-size // BLOCK) * BLOCK


def member_of(header: bytes) -> Member | None:
    """Return what a header says; `None` for zeros, the mark of the end; `ValueError` for what is no header.

    >>> import tarfile
    >>> info = tarfile.TarInfo("a.txt")
    >>> info.size = 3
    >>> member_of(info.tobuf())
    Member(name='a.txt', size=3, kind=b'0')
    """
    if not header[0] and header.count(0) == BLOCK:
        return None
    if not intact(header):
        raise ValueError("its checksum is wrong")
    kind = header[156:157]
    if kind == SPARSE:
        raise ValueError("it is of a sparse file, which is not supported")
    size = 0 if kind in EMPTY else number(header[124:136])
    if size < 0:
        raise ValueError("its size is negative")
    name = header[:100].partition(b"\0")[0]
    if header[345] and header[257:263] == b"ustar\0":
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return Member(text(name), size, kind)


def intact(header: bytes) -> bool:
    """Return whether a header has the checksum that it says: the sum of its bytes, with spaces in that place."""
    checksum = header[148:156]
    try:
        check = number(checksum)
    except ValueError:
        return False
    others = 8 * ord(" ") - sum(checksum)
    if ((zlib.adler32(header) & 0xFFFF) + others - 1 - check) % SMALL_PRIME == 0:  # many times as fast as `sum`
        return True
    signed = sum(byte - 256 if byte > 127 else byte for byte in header[:148] + header[156:]) + 8 * ord(" ")
    return check == signed  # as some old programs have it


def number(field: bytes) -> int:
    """Return a number: of octal digits, or where the first bit is set of bytes."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (1 << 8 * (len(field) - 1)) * (field[0] == 0xFF)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def text(name: bytes) -> str:
    """Return a name; bytes that are no UTF-8 stay, as `os.fsdecode` has them."""
    return name.decode("utf-8", "surrogateescape")


def long_name(content: bytes) -> str:
    """Return the name that a member of the kind `GNU_NAME` has for the next one."""
    return text(content.partition(b"\0")[0])


def pax_fields(content: bytes) -> tuple[str | None, int | None]:
    """Return name and size that a member of pax has for the next one; `ValueError` if it is damaged."""
    name: str | None = None
    size: int | None = None
    at = 0
    while at < len(content) and content[at]:
        space = content.index(b" ", at, at + 20)
        end = at + int(content[at:space])
        if not space < end <= len(content) or content[end - 1] != ord("\n"):
            raise ValueError("a field of its pax header is damaged")
        key, _, value = content[space + 1 : end - 1].partition(b"=")
        if key == b"path":
            name = text(value)
        elif key == b"size":
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise ValueError("it is of a sparse file, which is not supported")
        at = end
    return name, size
