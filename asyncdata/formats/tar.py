"""Headers of tar archives (ustar, GNU and pax): names and sizes of members."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

__all__ = (
    "BEFORE",
    "BLOCK",
    "DESCRIBING",
    "GNU_NAME",
    "LINKS",
    "UNUSED",
    "Member",
    "long_name",
    "member_of",
    "padded",
    "pax_fields",
)

BLOCK: Final = 512
"""The size of a header; contents are padded to a multiple of it."""

REGULAR: Final = frozenset({b"0", b"\0", b"7"})
"""The kinds of members that are files."""

EMPTY: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
"""Links, devices and folders, which have no content, whatever size their header gives."""

LINKS: Final = frozenset({b"1", b"2"})
"""Hard and symbolic links, whose content is elsewhere."""

SPARSE: Final = b"S"

GNU_NAME: Final = b"L"
"""The kind of a member that contains the name of the next member."""

DESCRIBING: Final = frozenset({b"x", b"X", GNU_NAME})
"""The kinds of members that describe the next member: its name, or for pax any of its fields."""

BEFORE: Final = DESCRIBING | {b"K", b"g"}
"""The kinds of all members that may precede the described member."""

UNUSED: Final = BEFORE | {b"5", b"D", b"V"}
"""The kinds of members without content whose names mean nothing: also folders, and the name of the archive."""

SMALL_PRIME: Final = 65521
"""The modulus of Adler-32, which contains the sum of bytes and begins at one."""


class Member(NamedTuple):
    """The fields of a member's header."""

    name: str
    size: int
    kind: bytes

    @property
    def regular(self) -> bool:
        """Whether it is a file."""
        return self.kind in REGULAR


def padded(size: int) -> int:
    """Return the size of a content with its padding."""
    return -(-size // BLOCK) * BLOCK


def member_of(header: bytes) -> Member | None:
    """Parse a header; `None` for zeros, the end marker; `ValueError` for other bytes.

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
    """Return whether a header's checksum is right: the sum of its bytes, with spaces in place of the checksum."""
    checksum = header[148:156]
    try:
        check = number(checksum)
    except ValueError:
        return False
    others = 8 * ord(" ") - sum(checksum)
    if ((zlib.adler32(header) & 0xFFFF) + others - 1 - check) % SMALL_PRIME == 0:  # many times as fast as `sum`
        return True
    signed = sum(byte - 256 if byte > 127 else byte for byte in header[:148] + header[156:]) + 8 * ord(" ")
    return check == signed  # as some old programs write it


def number(field: bytes) -> int:
    """Return a number: in octal digits, or in binary if the first bit is set."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (1 << 8 * (len(field) - 1)) * (field[0] == 0xFF)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def text(name: bytes) -> str:
    """Return a name; bytes that are not UTF-8 become surrogates, as in `os.fsdecode`."""
    return name.decode("utf-8", "surrogateescape")


def long_name(content: bytes) -> str:
    """Return the name of the next member, from a member of the kind `GNU_NAME`."""
    return text(content.partition(b"\0")[0])


def pax_fields(content: bytes) -> tuple[str | None, int | None]:
    """Return the name and size of the next member, from a pax member; `ValueError` if it is damaged."""
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
